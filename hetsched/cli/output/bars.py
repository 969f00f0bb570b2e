"""Live bars, one a device, for jobs that last. Only this file draws them, on standard error."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hetsched.cli.output.terminal import clean
from hetsched.job import DeviceProgress, JobState, Queued, Running, ended
from hetsched.text import MAX_CORES, together
from hetsched.units import format_seconds

PATIENCE = 0.5
"""Seconds: shorter jobs show no bars, only their table."""
WIDTH = 32


class Bars:
    """Draws nothing until a job is known, or has turned out, to last over PATIENCE."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._live: Live | None = None

    def show(self, state: JobState) -> None:
        if ended(state):
            self.close()
            return
        if self._live is None and not self._lasts(state):
            return
        if self._live is None:
            console = Console(stderr=True, markup=False, highlight=False, emoji=False)
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(picture(state), refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _lasts(self, state: JobState) -> bool:
        predicted = state.predicted_seconds if isinstance(state, Running) else None
        return (predicted or 0.0) > PATIENCE or time.monotonic() - self._began > PATIENCE


def picture(state: JobState) -> Table:
    """What one moment of a job looks like."""
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_row(*(Text(cell) for cell in _headline(state)), Text(""))
    if isinstance(state, Running):
        for name, done, share in _rows(state):
            bar = ProgressBar(total=max(1, share), completed=done, width=WIDTH)
            table.add_row(Text(f"  {clean(name)}"), bar, Text(f"{done}/{share}"))
    return table


def _headline(state: JobState) -> tuple[str, str]:
    job = f"job {state.job}"
    if isinstance(state, Queued):
        return job, f"waits for {state.ahead} before it" if state.ahead else "starts"
    if not isinstance(state, Running):
        return job, ""
    text = clean(state.text) or state.stage
    if state.predicted_seconds is not None:
        text += f", predicted {format_seconds(state.predicted_seconds)}"
    return job, text


def _rows(state: Running) -> list[tuple[str, int, int]]:
    """(name, done, share); many cores become one row."""

    def name(one: DeviceProgress) -> str:
        return one.device

    rows = []
    for label, members in together(state.devices, name, MAX_CORES):
        rows.append((label, sum(m.done for m in members), sum(m.share for m in members)))
    return rows
