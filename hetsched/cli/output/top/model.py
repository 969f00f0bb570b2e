"""The state of the screen, and what keys and answers do to it. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from hetsched.transport.messages import DaemonOverview, JobLine

PAGE = 10
"""Lines by which Page Up and Page Down move. Arbitrary."""


class TopMode(enum.Enum):
    """What the screen shows."""

    JOBS = "jobs"
    HELP = "help"
    EXPLANATION = "explanation"
    CONFIRMATION = "confirmation"


@dataclass(frozen=True)
class JobAction:
    """Something to be done with a job: "hold", "release", "cancel" or "explain"."""

    verb: str
    job: int


@dataclass(frozen=True)
class Quit:
    """Leave; `code` is the exit code."""

    code: int = 0


Action = JobAction | Quit

VERBS = {"h": "hold", "r": "release", "e": "explain"}
PAST = {"hold": "held", "release": "released", "cancel": "cancelled"}
MOVES = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -PAGE, "pagedown": PAGE}
ENDS = {"home": "first", "g": "first", "end": "last", "G": "last"}


@dataclass(frozen=True)
class TopState:
    """Everything that is shown.

    Attributes
    ----------
    overview : DaemonOverview or None
        The last one; None before the first.
    error : str
        Why there is no newer one; "": there is.
    message : str
        What became of the last action.
    selected : int or None
        Job number.
    text : tuple of str
        The lines of an explanation.
    scroll : int, lines
    """

    overview: DaemonOverview | None = None
    error: str = ""
    message: str = ""
    selected: int | None = None
    mode: TopMode = TopMode.JOBS
    text: tuple[str, ...] = ()
    scroll: int = 0

    @property
    def jobs(self) -> tuple[JobLine, ...]:
        return () if self.overview is None else self.overview.jobs

    @property
    def index(self) -> int:
        """Return the row of the selected job; 0 if there is none."""
        numbers = [job.job for job in self.jobs]
        return numbers.index(self.selected) if self.selected in numbers else 0


def on_overview(state: TopState, overview: DaemonOverview) -> TopState:
    """Show newer figures. The selection stays on its job, or on its row if the job has ended."""
    row = state.index
    numbers = [job.job for job in overview.jobs]
    selected = state.selected
    if selected not in numbers:
        selected = numbers[min(row, len(numbers) - 1)] if numbers else None
    return replace(state, overview=overview, error="", selected=selected)


def on_failure(state: TopState, error: str) -> TopState:
    """Keep the last figures, and say why there are no newer ones."""
    return replace(state, error=error)


def on_done(state: TopState, action: JobAction, is_changed: bool = True) -> TopState:
    """Report an action; without `is_changed` there was nothing to do."""
    already = "" if is_changed else "already "
    return replace(state, message=f"job {action.job}: {already}{PAST[action.verb]}")


def on_refused(state: TopState, error: str) -> TopState:
    """Report why an action was refused; the error names the job."""
    return replace(state, message=error)


def on_explanation(state: TopState, lines: tuple[str, ...]) -> TopState:
    return replace(state, mode=TopMode.EXPLANATION, text=lines, scroll=0, message="")


def on_key(state: TopState, key: str) -> tuple[TopState, Action | None]:
    """Return the state after a key, and what is to be done."""
    if key == "ctrl-c":
        return state, Quit(130)
    match state.mode:
        case TopMode.CONFIRMATION:
            return _on_confirmation_key(state, key)
        case TopMode.HELP:
            return replace(state, mode=TopMode.JOBS), None
        case TopMode.EXPLANATION:
            return _on_explanation_key(state, key), None
        case TopMode.JOBS:
            return _on_jobs_key(state, key)


def _on_jobs_key(state: TopState, key: str) -> tuple[TopState, Action | None]:
    state = replace(state, message="")
    if key == "q":
        return state, Quit()
    if key == "?":
        return replace(state, mode=TopMode.HELP), None
    if key in MOVES:
        return _select(state, state.index + MOVES[key]), None
    if key in ENDS:
        return _select(state, 0 if ENDS[key] == "first" else len(state.jobs) - 1), None
    if key != "c" and key not in VERBS:
        return state, None
    if state.selected is None:
        return replace(state, message="no job is selected"), None
    if key == "c":
        return replace(state, mode=TopMode.CONFIRMATION), None
    return state, JobAction(VERBS[key], state.selected)


def _on_confirmation_key(state: TopState, key: str) -> tuple[TopState, Action | None]:
    job = state.selected
    state = replace(state, mode=TopMode.JOBS)
    if key == "y" and job is not None:
        return state, JobAction("cancel", job)
    return state, None


def _on_explanation_key(state: TopState, key: str) -> TopState:
    if key in MOVES:
        return replace(state, scroll=_clamp(state.scroll + MOVES[key], len(state.text)))
    if key in ENDS:
        last = len(state.text) - PAGE
        return replace(state, scroll=0 if ENDS[key] == "first" else max(0, last))
    return replace(state, mode=TopMode.JOBS, text=(), scroll=0)


def _select(state: TopState, row: int) -> TopState:
    if not state.jobs:
        return state
    return replace(state, selected=state.jobs[_clamp(row, len(state.jobs))].job)


def _clamp(row: int, count: int) -> int:
    return max(0, min(row, count - 1))
