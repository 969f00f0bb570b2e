"""Live progress bars of a measurement, one per case, on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hetsched.cli.commands.models.measurement_lines import title
from hetsched.cli.output.bars import BAR_WIDTH, LiveTable, grid
from hetsched.cli.output.model_labels import percent
from hetsched.cli.output.terminal import clean
from hetsched.job import JobState, Running

if TYPE_CHECKING:
    from hetsched.cli.commands.models.measurement_schedule import (
        MeasurementCase,
        MeasurementSchedule,
    )


class MeasurementBars:
    """A row per case: repeats of the maximum, and the width of its confidence interval."""

    def __init__(self, plan: MeasurementSchedule) -> None:
        self._plan = plan
        self._text = ""
        self._live = LiveTable()

    def show(self, case: MeasurementCase, state: JobState) -> None:
        text = clean(state.text) if isinstance(state, Running) else ""
        if text != self._text:
            self._text = text
            self._draw()

    def on_result(self, case: MeasurementCase) -> None:
        self._draw()

    def close(self) -> None:
        self._live.close()

    def _draw(self) -> None:
        self._live.draw(measurement_table(self._plan, self._text))


def measurement_table(plan: MeasurementSchedule, text: str) -> Table:
    """Draw the present state of a measurement."""
    table = grid(4)
    for progress in plan.progress():
        repeats = progress.repeats
        total = repeats if progress.is_done else plan.max_repeats
        bar = ProgressBar(total=max(total, 1), completed=repeats, width=BAR_WIDTH)
        state = "done" if progress.is_done else f"{repeats}/{plan.max_repeats}"
        name, width = clean(title(progress.case)), percent(progress.half_width)
        table.add_row(Text(name), bar, Text(width), Text(state))
    if text:
        table.add_row(Text(text))
    return table
