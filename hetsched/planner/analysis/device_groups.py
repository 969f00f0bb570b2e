"""Groups of equal devices, whose names differ only by their numbers."""

from __future__ import annotations

from collections.abc import Sequence

MAX_LISTED_DEVICES = 2
"""Maximum size of a group whose devices are named individually."""


def groups_of(names: Sequence[str]) -> list[list[str]]:
    """Return ["cpu0", "gpu0", "cpu1"] as [["cpu0", "cpu1"], ["gpu0"]]."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.rstrip("0123456789"), []).append(name)
    return list(groups.values())


def group_name(names: Sequence[str]) -> str:
    """Return "cpu0 and cpu1", or "cpu0 to cpu7" for more devices."""
    if len(names) <= MAX_LISTED_DEVICES:
        return " and ".join(names)
    return f"{names[0]} to {names[-1]}"
