"""`hetsched simulate`: the papers' experiments, compared with their figures, and machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hetsched.cli.app import LazyGroup, new_group, single
from hetsched.cli.commands.simulate.machine import machine
from hetsched.cli.commands.simulate.papers import clarke, dfpa, ilic, nec

if TYPE_CHECKING:
    from typer._click import Command

EXPERIMENTS: dict[str, Callable[..., None]] = {
    "clarke": clarke,
    "dfpa": dfpa,
    "nec": nec,
    "ilic": ilic,
    "machine": machine,
}


class Experiments(LazyGroup):
    """The papers, by their names, and `machine`."""

    noun = "experiment"

    def names(self) -> list[str]:
        return list(EXPERIMENTS)

    def make(self, name: str) -> Command:
        return single(name, EXPERIMENTS[name])


def group() -> Command:
    help = "Simulate the papers' experiments and whole machines."
    return new_group(help, Experiments, "EXPERIMENT [FLAGS]...")
