"""The text of an explanation: all statements follow from the record's figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.explain.text.alternatives import alternative_lines, what_if_lines
from hetsched.explain.text.headline import headline_lines
from hetsched.explain.text.iteration_lines import (
    checkpoint_lines,
    first_rows_table,
    iteration_headline,
    move_lines,
    phase_table,
    progress_table,
)
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
    sections = _iterative(explanation, width) or _single_pass(explanation, width)
    lines = [clean(line) for section in sections if section for line in ("", *section)]
    if width is not None:
        lines = [part for line in lines for part in folded(line, width)]
    return "\n".join(lines[1:])


def _single_pass(explanation: Explanation, width: int | None) -> list[list[str]]:
    return [
        headline_lines(explanation),
        share_table(explanation, width),
        seconds_table(explanation, width),
        breakdown_table(explanation, width),
        reason_lines(explanation),
        alternative_lines(explanation),
        _titled("warnings:", run_warnings(explanation)),
        what_if_lines(explanation),
    ]


def _iterative(explanation: Explanation, width: int | None) -> list[list[str]]:
    history = explanation.iterations
    if history is None:
        return []
    return [
        iteration_headline(explanation, history),
        first_rows_table(explanation, width),
        phase_table(explanation, history, width),
        progress_table(history, width),
        reason_lines(explanation),
        move_lines(history),
        checkpoint_lines(history),
    ]


def _titled(title: str, lines: list[str]) -> list[str]:
    return [title, *(f"  {line}" for line in lines)] if lines else []
