"""`hetsched simulate`: the papers' experiments beside the papers' figures, and whole machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer
import typer.main

from hetsched.cli.app import LazyGroup, new, single
from hetsched.cli.commands.simulate.common import Plot, Seed, checked, show
from hetsched.cli.commands.simulate.machine import machine
from hetsched.cli.request_flags import Force, Json
from hetsched.errors import UsageError
from hetsched.units import parse_size

MIB = 1 << 20
MOST_PLATFORMS = 10_000
RESERVE, FACTOR, WIDTH = "44MiB", 75.0, 0.05
"""Of `clarke`, where its flags don't say."""

Tolerance = Annotated[
    float, typer.Option(metavar="T", help="Of times that count as equal: their relative spread.")
]


class Experiments(LazyGroup):
    """The papers, by their names, and `machine`."""

    what = "experiment"

    def names(self) -> list[str]:
        return list(EXPERIMENTS)

    def make(self, name: str) -> Any:
        return single(name, EXPERIMENTS[name])


def group() -> Any:
    app = new(cls=Experiments, subcommand_metavar="EXPERIMENT [FLAGS]...")
    app.callback(help="Repeat the papers' experiments on machines that are only curves.")(_nothing)
    return typer.main.get_command(app)


def _nothing() -> None:
    """Typer makes a group only where there is a callback."""


def clarke(  # noqa: PLR0913, PLR0917 - one a flag
    rows: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Of the matrix; may be repeated: 8000, 11000 and 12000."),
    ] = None,
    reserve: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory that isn't for the matrix. [default: 44MiB]"),
    ] = None,
    factor: Annotated[
        float | None,
        typer.Option(
            metavar="F", help="How many times as slow paging makes a machine. [default: 75]"
        ),
    ] = None,
    width: Annotated[
        float | None,
        typer.Option(
            metavar="W", help="Over which part of the capacity; 0.05 is 5 %. [default: 0.05]"
        ),
    ] = None,
    linear: Annotated[
        Literal["time", "speed"], typer.Option(help="What changes linearly there.")
    ] = "time",
    tolerance: Tolerance = 0.05,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Instead: 72 settings of size, reserve and paging.")
    ] = False,
    plot: Plot = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Jacobi's method on four machines, two with little memory (Clarke 2011)."""
    from hetsched.simulate.papers import clarke as experiment

    checked(plot, force)
    if sweep:
        given = {"--rows": rows, "--reserve": reserve, "--factor": factor, "--width": width}
        for flag, value in given.items():
            if value is not None:
                raise UsageError(f"{flag} and --sweep: the sweep has its own settings; drop one")
        show(experiment.sweep(linear, tolerance=tolerance), plot, force, json)
        return
    memory = parse_size(RESERVE if reserve is None else reserve) / MIB
    factor, width = FACTOR if factor is None else factor, WIDTH if width is None else width
    like = experiment.Setting(11000, memory, factor, width, linear)
    loads = tuple(rows or (8000, 11000, 12000))
    show(experiment.report(loads, like=like, tolerance=tolerance), plot, force, json)


def dfpa(
    platforms: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=MOST_PLATFORMS, help="Random ones, of each kind."),
    ] = 200,
    seed: Seed = 1,
    tolerance: Tolerance = 0.1,
    plot: Plot = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Distributed partitioning on 16 machines, and on random ones (Lastovetsky 2010)."""
    from hetsched.simulate.papers import dfpa as experiment

    checked(plot, force)
    show(experiment.report(platforms, seed=seed, tolerance=tolerance), plot, force, json)


def nec(
    nodes: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Of a random cluster; may be repeated: 4, 16 and 64."),
    ] = None,
    seed: Seed = 1,
    plot: Plot = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Balancing by the imbalance factor of waits (NEC, US 9,038,088)."""
    from hetsched.simulate.papers import nec as experiment

    checked(plot, force)
    show(experiment.report(tuple(nodes or (4, 16, 64)), seed=seed), plot, force, json)


def ilic(
    tolerance: Tolerance = 0.08,
    noise: Annotated[
        float, typer.Option(metavar="S", help="Of the random loops' times; 0.02 is 2 %.")
    ] = 0.02,
    seed: Seed = 1,
    plot: Plot = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """A GPU's share in overlapped chunks, beside three cores (Ilic & Sousa 2012)."""
    from hetsched.simulate.papers import ilic_report as experiment

    checked(plot, force)
    show(experiment.report(tolerance=tolerance, noise=noise, seed=seed), plot, force, json)


EXPERIMENTS: dict[str, Callable[..., None]] = {
    "clarke": clarke,
    "dfpa": dfpa,
    "nec": nec,
    "ilic": ilic,
    "machine": machine,
}
