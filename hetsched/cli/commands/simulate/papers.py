"""`hetsched simulate clarke|dfpa|nec|ilic`: the papers' experiments."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from hetsched.cli.commands.simulate.results import Plot, Seed, check_plot, show
from hetsched.cli.integer_parser import integers
from hetsched.cli.request_flags import Force, Json
from hetsched.errors import UsageError
from hetsched.units import parse_size

MIB = 1 << 20
MAX_PLATFORMS = 10_000
CLARKE_RESERVE, CLARKE_FACTOR, CLARKE_WIDTH = "44MiB", 75.0, 0.05
"""Defaults, which the sweep must distinguish from flags that were given."""

Tolerance = Annotated[
    float, typer.Option(metavar="T", help="Relative spread of times that counts as balanced.")
]


def clarke(  # noqa: PLR0913, PLR0917 - one for each flag
    rows: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N", help="Matrix rows; may be repeated. [default: 8000, 11000, 12000]"
        ),
    ] = None,
    reserve: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory not used by the matrix. [default: 44MiB]"),
    ] = None,
    factor: Annotated[
        float | None,
        typer.Option(metavar="F", help="Slow-down by paging. [default: 75]"),
    ] = None,
    width: Annotated[
        float | None,
        typer.Option(
            metavar="W", help="Part of the memory over which paging sets in. [default: 0.05]"
        ),
    ] = None,
    linear: Annotated[
        Literal["time", "speed"], typer.Option(help="What changes linearly while it sets in.")
    ] = "time",
    tolerance: Tolerance = 0.05,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Try 72 settings of size, reserve and paging.")
    ] = False,
    plot: Plot = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Balance Jacobi on machines with little memory (Clarke 2011)."""
    from hetsched.simulate.papers import clarke as experiment

    check_plot(plot, force)
    if sweep:
        values = {"--rows": rows, "--reserve": reserve, "--factor": factor, "--width": width}
        for flag, value in values.items():
            if value is not None:
                raise UsageError(f"{flag} can't be used with --sweep, which has its own settings")
        show(experiment.run_sweep(linear, tolerance=tolerance), plot, force, json)
        return
    memory = parse_size(CLARKE_RESERVE if reserve is None else reserve) / MIB
    factor = CLARKE_FACTOR if factor is None else factor
    width = CLARKE_WIDTH if width is None else width
    like = experiment.ClarkeSetting(11000, memory, factor, width, linear)
    loads = tuple(rows or (8000, 11000, 12000))
    show(experiment.run_experiment(loads, like=like, tolerance=tolerance), plot, force, json)


def dfpa(
    platforms: Annotated[
        int,
        typer.Option(
            metavar="N", parser=integers(1, MAX_PLATFORMS), help="Random platforms of each kind."
        ),
    ] = 200,
    seed: Seed = 1,
    tolerance: Tolerance = 0.1,
    plot: Plot = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Partition without prior models (DFPA, Lastovetsky 2010)."""
    from hetsched.simulate.papers import dfpa as experiment

    check_plot(plot, force)
    show(experiment.run_experiment(platforms, seed=seed, tolerance=tolerance), plot, force, json)


def nec(
    nodes: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N", help="Nodes of a random cluster; may be repeated. [default: 4, 16, 64]"
        ),
    ] = None,
    seed: Seed = 1,
    plot: Plot = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Balance by wait times (NEC, US 9,038,088)."""
    from hetsched.simulate.papers import nec as experiment

    check_plot(plot, force)
    show(experiment.run_experiment(tuple(nodes or (4, 16, 64)), seed=seed), plot, force, json)


def ilic(
    tolerance: Tolerance = 0.08,
    noise: Annotated[
        float, typer.Option(metavar="S", help="Noise of random loops' times; 0.02 is 2 %.")
    ] = 0.02,
    seed: Seed = 1,
    plot: Plot = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Balance a GPU and three cores with overlap (Ilic 2012)."""
    from hetsched.simulate.papers import ilic as experiment

    check_plot(plot, force)
    show(experiment.run_experiment(tolerance=tolerance, noise=noise, seed=seed), plot, force, json)
