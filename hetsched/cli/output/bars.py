"""Live progress bars of a job, one per device, on standard error."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hetsched.cli.output.iteration_rows import iteration_progress
from hetsched.cli.output.progress import TURN
from hetsched.cli.output.terminal import clean
from hetsched.job import DeviceProgress, Ended, JobState, Queued, Running
from hetsched.text import MAX_GROUP_ROWS, grouped_rows
from hetsched.units import format_seconds

MIN_DURATION = 0.5
"""Seconds: shorter jobs show no bars, only their table."""
BAR_WIDTH = 32


class LiveTable:
    """A table on standard error that is redrawn in place and removed at the end."""

    def __init__(self) -> None:
        self._live: Live | None = None

    @property
    def is_shown(self) -> bool:
        return self._live is not None

    def draw(self, table: Table) -> None:
        if self._live is None:
            console = Console(stderr=True, markup=False, highlight=False, emoji=False)
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(table, refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class JobBars:
    """Bars of a job that takes, or is predicted to take, longer than MIN_DURATION."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._live = LiveTable()

    @property
    def is_shown(self) -> bool:
        return self._live.is_shown

    def show(self, state: JobState) -> None:
        if isinstance(state, Ended):
            self.close()
        elif self.is_shown or self._is_long(state):
            self._live.draw(job_table(state))

    def close(self) -> None:
        self._live.close()

    def _is_long(self, state: JobState) -> bool:
        predicted = state.predicted_seconds if isinstance(state, Running) else None
        elapsed = time.monotonic() - self._began
        return (predicted or 0.0) > MIN_DURATION or elapsed > MIN_DURATION


def grid(columns: int) -> Table:
    """Make an empty table without lines."""
    table = Table.grid(padding=(0, 2))
    for _ in range(columns):
        table.add_column(no_wrap=True)
    return table


def job_table(state: JobState) -> Table:
    """Draw the present state of a job: done units, or the rows of an iterative one."""
    whole, table = grid(1), grid(3)
    whole.add_row(Text("  ".join(clean(cell) for cell in _headline(state))))
    if isinstance(state, Running):
        load = sum(device.share for device in state.devices)
        for name, done, share in _rows(state):
            if state.iteration is None:
                bar = ProgressBar(total=max(1, share), completed=done, width=BAR_WIDTH)
                label = f"{done}/{share}"
            else:
                bar = ProgressBar(total=max(1, load), completed=share, width=BAR_WIDTH)
                label = f"{share} rows, {100 * share / max(1, load):.1f} %"
            table.add_row(Text(f"  {clean(name)}"), bar, Text(label))
        if state.devices:
            whole.add_row(table)
    return whole


def _headline(state: JobState) -> tuple[str, str]:
    job = f"job {state.job}"
    if isinstance(state, Queued):
        if state.reason not in ("", *TURN):
            return job, f"queued, {clean(state.reason)}"
        return job, f"queued, {state.ahead} ahead" if state.ahead else "starting"
    if not isinstance(state, Running):
        return job, ""
    text = clean(state.text) or iteration_progress(state) or state.stage
    if state.predicted_seconds is not None:
        text += f", predicted {format_seconds(state.predicted_seconds)}"
    return job, text


def _rows(state: Running) -> list[tuple[str, int, int]]:
    """Return (name, done, share) of each row; many cores share one."""

    def name(device: DeviceProgress) -> str:
        return device.device

    rows = []
    for label, members in grouped_rows(state.devices, name, MAX_GROUP_ROWS):
        rows.append((label, sum(m.done for m in members), sum(m.share for m in members)))
    return rows
