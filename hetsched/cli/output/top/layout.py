"""The screen as lines: any size, every line exactly as wide as it may be. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import set_cell_size

from hetsched.cli.output import job_lines
from hetsched.cli.output.top.device_rows import HEADER, LEFT_COLUMNS, device_rows
from hetsched.cli.output.top.model import TopMode, TopState
from hetsched.job import Queued, Running
from hetsched.text import clean, columns
from hetsched.transport.messages import DaemonOverview, JobLine
from hetsched.units import counted, format_bytes, format_seconds

KEYS = "h hold  r release  c cancel  e explain  ? help  q quit"
HELP = (
    "keys",
    "",
    "  up, down, j, k     select a job; Page Up and Page Down by 10; g, G first and last",
    "  h                  hold: keep a waiting job from starting",
    "  r                  release a held job",
    "  c                  cancel: a running job stops after its current chunks; asks first",
    "  e                  explain: why this split, predicted and measured times",
    "  q, Ctrl-C          quit; jobs continue",
    "",
    "devices",
    "",
    "  done/share         units computed, of those planned for it: the split of the job",
    "  units/s            over the last chunks; predicted: by the models; ratio of the two",
    "                     of an iterative job: its rows, and the time in which it computed",
    "  link               rate while copying, and how much of the time it copied",
)
JOB_HEADER = ("job", "prio", "workload", "state", "", "parameters")


@dataclass(frozen=True)
class ScreenLine:
    """`style`: "", "bold", "dim", "reverse" or "red"."""

    text: str
    style: str = ""


def screen(state: TopState, width: int, height: int) -> list[ScreenLine]:
    """Return exactly `height` lines of exactly `width` cells."""
    body_height = max(0, height - 3)
    match state.mode:
        case TopMode.HELP:
            body = [ScreenLine(line) for line in HELP]
        case TopMode.EXPLANATION:
            body = [ScreenLine(clean(line)) for line in state.text[state.scroll :]]
        case _:
            body = _jobs_and_devices(state, body_height)
    body = body[:body_height] + [ScreenLine("")] * (body_height - len(body))
    lines = [_title(state), ScreenLine(""), *body, _footer(state)]
    return [ScreenLine(set_cell_size(line.text, width), line.style) for line in lines[:height]]


def _title(state: TopState) -> ScreenLine:
    overview = state.overview
    if overview is None:
        return ScreenLine("hetsched: waiting for the daemon", "bold")
    stopping = ", stopping" if overview.is_stopping else ""
    text = (
        f"hetsched,"
        f" up {_uptime(overview.daemon.uptime_seconds)}{stopping}: {overview.running} running,"
        f" {overview.waiting} waiting, {overview.ended} ended;"
        f" {format_bytes(overview.arena_used)} of {format_bytes(overview.arena_limit)}"
    )
    return ScreenLine(clean(text), "bold")


def _uptime(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _footer(state: TopState) -> ScreenLine:
    if state.mode is TopMode.CONFIRMATION:
        return ScreenLine(f"cancel job {state.selected}? y: yes, any other key: no", "reverse")
    if state.error:
        return ScreenLine(clean(state.error), "red")
    if state.mode is TopMode.EXPLANATION:
        return ScreenLine("up, down scroll  any other key: back", "dim")
    if state.mode is TopMode.HELP:
        return ScreenLine("any key: back", "dim")
    return (
        ScreenLine(clean(state.message), "reverse") if state.message else ScreenLine(KEYS, "dim")
    )


def _jobs_and_devices(state: TopState, height: int) -> list[ScreenLine]:
    """Divide the height: devices get what they need, but at most about half of it."""
    overview = state.overview
    if overview is None:
        return []
    devices = _devices(overview, max(1, height // 2 - 1))
    jobs = _jobs(state, overview, height - len(devices) - 1)
    return [*devices, ScreenLine(""), *jobs]


def _devices(overview: DaemonOverview, max_rows: int) -> list[ScreenLine]:
    rows = device_rows(overview, max_rows)
    table = columns(HEADER, [row.cells for row in rows if row.cells], LEFT_COLUMNS)
    lines = [ScreenLine(table.pop(0), "bold")]
    for row in rows:
        lines.append(ScreenLine(table.pop(0)) if row.cells else ScreenLine(row.line, "dim"))
    return lines


def _jobs(state: TopState, overview: DaemonOverview, height: int) -> list[ScreenLine]:
    """Return the jobs around the selected one, and how many aren't shown."""
    if not overview.jobs:
        hint = "no jobs; try: hetsched submit fft --batch 256x512x512"
        return [ScreenLine(hint, "dim")][: max(0, height)]
    table = columns(JOB_HEADER, [_job_cells(job, overview.now) for job in overview.jobs], 6)
    visible = max(1, height - 2)
    first = max(0, min(state.index - visible // 2, len(overview.jobs) - visible))
    lines = [ScreenLine(f"  {table[0]}", "bold")]
    for row in range(first, min(first + visible, len(overview.jobs))):
        is_selected = overview.jobs[row].job == state.selected
        mark = "> " if is_selected else "  "
        lines.append(ScreenLine(mark + table[row + 1], "reverse" if is_selected else ""))
    hidden = overview.running + overview.waiting - (len(lines) - 1)
    if hidden > 0:
        lines.append(ScreenLine(f"  {counted(hidden, 'more job')}", "dim"))
    return lines


def _job_cells(job: JobLine, now: float) -> tuple[str, ...]:
    since = job.submitted_at if job.started_at is None else job.started_at
    seconds = format_seconds(max(0.0, now - since))
    name = f"{job.workload} ({job.label})" if job.label else job.workload
    return (
        str(job.job),
        str(job.priority),
        name,
        job_lines.word(job.state),
        f"{_stage(job)}, {seconds}",
        job_lines.parameters(job.params),
    )


def _stage(job: JobLine) -> str:
    state = job.state
    if isinstance(state, Queued) and state.reason not in ("", "priority", "resources"):
        return state.reason
    if not isinstance(state, Running):
        return job_lines.detail(state)
    if state.iteration is not None and state.stage == "computing":
        return job_lines.detail(state)
    share = sum(device.share for device in state.devices)
    done = sum(device.done for device in state.devices)
    if not share:
        return state.text or state.stage
    predicted = state.predicted_seconds
    whole = "" if predicted is None else f" of {format_seconds(predicted)}"
    return f"{state.stage} {done / share:.0%}{whole}"


def as_text(lines: Sequence[ScreenLine]) -> str:
    """Return the screen without styles, for tests and logs."""
    return "\n".join(line.text.rstrip() for line in lines)
