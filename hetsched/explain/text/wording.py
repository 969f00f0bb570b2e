"""Phrases common to several sections of an explanation."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.text import MAX_GROUP_ROWS, grouped_rows


def device_names(names: Sequence[str]) -> str:
    """Format names as "cpu0, cpu1", or as "cpu (64)" for many devices of one kind."""
    return ", ".join(label for label, _ in grouped_rows(names, str, MAX_GROUP_ROWS))


def signed_percent(ratio: float) -> str:
    """Format 0.25 as "+25.0 %"."""
    return f"{100 * ratio:+.1f} %"
