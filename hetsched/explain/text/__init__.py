"""The text of an explanation: all statements follow from the record's figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.explain.text.alternatives import alternative_lines, what_if_lines
from hetsched.explain.text.headline import headline_lines
from hetsched.explain.text.reasons import reason_lines
from hetsched.explain.text.run_warnings import run_warnings
from hetsched.explain.text.share_table import share_table
from hetsched.explain.text.time_tables import breakdown_table, seconds_table
from hetsched.text import clean, folded

if TYPE_CHECKING:
    from hetsched.explain.records import Explanation

__all__ = ["explanation_text"]


def explanation_text(explanation: Explanation, width: int | None = None) -> str:
    """Return all sections, in lines of about 100 characters, or at most `width` if possible."""
    sections = [
        headline_lines(explanation),
        share_table(explanation, width),
        seconds_table(explanation, width),
        breakdown_table(explanation, width),
        reason_lines(explanation),
        alternative_lines(explanation),
        _titled("warnings:", run_warnings(explanation)),
        what_if_lines(explanation),
    ]
    lines = [clean(line) for section in sections if section for line in ("", *section)]
    if width is not None:
        lines = [part for line in lines for part in folded(line, width)]
    return "\n".join(lines[1:])


def _titled(title: str, lines: list[str]) -> list[str]:
    return [title, *(f"  {line}" for line in lines)] if lines else []
