"""How far a measurement is: plain lines, or bars where a person looks on. On standard error."""

from __future__ import annotations

from typing import Any, Protocol

from hetsched.cli.commands.models.labels import percent
from hetsched.cli.output.progress import a_person_looks_on
from hetsched.cli.output.terminal import note
from hetsched.job import JobState, Running
from hetsched.text import MAX_CORES, together
from hetsched.units import counted


class View(Protocol):
    """Shows a measurement to people."""

    def show(self, case: Any, state: JobState) -> None:
        """A job of `case` is at `state`; called many times."""

    def told(self, case: Any) -> None:
        """A job of `case` has ended, and its times are known."""

    def close(self) -> None: ...


def new_view(plan: Any) -> View:
    """For a `MeasurementSchedule`."""
    if not a_person_looks_on():
        return Plain(plan)
    from hetsched.cli.commands.models.bars import Bars

    return Bars(plan)


class Plain:
    """One line a case that is done: "8 units, pyfftw: within 1.2 % after 5 repeats"."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan
        self._said: set[str] = set()

    def show(self, case: Any, state: JobState) -> None:
        if isinstance(state, Running) and state.text and state.text not in self._said:
            self._said.add(state.text)
            note(state.text)

    def told(self, case: Any) -> None:
        for progress in self._plan.progress():
            if progress.case is case and progress.is_done:
                width = percent(progress.half_width)
                note(f"{title(case)}: within {width} after {progress.repeats} repeats")

    def close(self) -> None:
        pass


def title(case: Any) -> str:
    """ "8 units: pyfftw on core0, core1, emu0"; many cores become one word."""
    groups: dict[str, list[str]] = {}
    for device, variant in case.variants.items():
        groups.setdefault(variant, []).append(device)
    parts = [
        f"{variant} on {', '.join(label for label, _ in together(devices, str, MAX_CORES))}"
        for variant, devices in groups.items()
    ]
    return f"{counted(case.units, 'unit')}: {'; '.join(parts)}"
