"""Live bars of a measurement, one a size; drawn on standard error."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hetsched.cli.commands.models.labels import percent
from hetsched.cli.commands.models.progress import title
from hetsched.cli.output.bars import WIDTH
from hetsched.cli.output.terminal import clean
from hetsched.job import JobState, Running


class Bars:
    """A row a case: how many of the most repeats it has had, and how narrow its interval is."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan
        self._text = ""
        console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, case: Any, state: JobState) -> None:
        text = clean(state.text) if isinstance(state, Running) else ""
        if text != self._text:
            self._text = text
            self._draw()

    def told(self, case: Any) -> None:
        self._draw()

    def close(self) -> None:
        self._live.stop()

    def _draw(self) -> None:
        self._live.update(picture(self._plan, self._text), refresh=True)


def picture(plan: Any, text: str) -> Table:
    """What one moment of a measurement looks like."""
    table = Table.grid(padding=(0, 2))
    for _ in range(4):
        table.add_column(no_wrap=True)
    for progress in plan.progress():
        repeats = progress.repeats
        total = repeats if progress.is_done else plan.max_repeats
        bar = ProgressBar(total=max(total, 1), completed=repeats, width=WIDTH)
        state = "done" if progress.is_done else f"{repeats}/{plan.max_repeats}"
        name, width = clean(title(progress.case)), percent(progress.half_width)
        table.add_row(Text(name), bar, Text(width), Text(state))
    if text:
        table.add_row(Text(text))
    return table
