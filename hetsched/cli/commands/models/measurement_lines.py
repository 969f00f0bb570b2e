"""Progress of a measurement on standard error: as bars on a terminal, else as plain lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hetsched.cli.output.model_labels import percent
from hetsched.cli.output.terminal import is_interactive, note
from hetsched.job import JobState, Running
from hetsched.text import MAX_GROUP_ROWS, grouped_rows
from hetsched.units import counted

if TYPE_CHECKING:
    from hetsched.cli.commands.models.measurement_schedule import (
        MeasurementCase,
        MeasurementSchedule,
    )


class MeasurementView(Protocol):
    """Shows the progress of a measurement."""

    def show(self, case: MeasurementCase, state: JobState) -> None:
        """Show the state of a job of `case`; called many times."""

    def on_result(self, case: MeasurementCase) -> None:
        """Show that a job of `case` has ended and its times have been added."""

    def close(self) -> None: ...


def new_view(plan: MeasurementSchedule) -> MeasurementView:
    """Return bars on a terminal, else plain lines."""
    if not is_interactive():
        return MeasurementLines(plan)
    from hetsched.cli.commands.models.measurement_bars import MeasurementBars

    return MeasurementBars(plan)


class MeasurementLines:
    """One line per finished case: "8 units: pyfftw on core0: within 1.2 % after 5 repeats"."""

    def __init__(self, plan: MeasurementSchedule) -> None:
        self._plan = plan
        self._printed: set[str] = set()

    def show(self, case: MeasurementCase, state: JobState) -> None:
        if isinstance(state, Running) and state.text and state.text not in self._printed:
            self._printed.add(state.text)
            note(state.text)

    def on_result(self, case: MeasurementCase) -> None:
        for progress in self._plan.progress():
            if progress.case is case and progress.is_done:
                width = percent(progress.half_width)
                note(f"{title(case)}: within {width} after {counted(progress.repeats, 'repeat')}")

    def close(self) -> None:
        pass


def title(case: MeasurementCase) -> str:
    """Describe a case: "8 units: pyfftw on core0, core1, emu0"; many cores become one word."""
    groups: dict[str, list[str]] = {}
    for device, variant in case.variants.items():
        groups.setdefault(variant, []).append(device)
    parts = []
    for variant, devices in groups.items():
        labels = [label for label, _ in grouped_rows(devices, str, MAX_GROUP_ROWS)]
        parts.append(f"{variant} on {', '.join(labels)}")
    return f"{counted(case.units, 'unit')}: {'; '.join(parts)}"
