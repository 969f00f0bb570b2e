"""`hetsched simulate`: the papers' experiments, compared with their figures, and machines."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hetsched.cli.app import Group, group
from hetsched.cli.flags import Force, Json, Plot, Seed, integers, option, switch
from hetsched.cli.terminal import note, out, out_json, out_table, width
from hetsched.errors import UsageError
from hetsched.text import number
from hetsched.units import parse_size

if TYPE_CHECKING:
    from hetsched.simulate.results import Cell, ExperimentResult

MIB = 1 << 20
CLARKE_RESERVE, CLARKE_FACTOR, CLARKE_WIDTH = 44 * MIB, 75.0, 0.05
"""Defaults, which the sweep must distinguish from flags that were given."""
MAX_NOISE = 0.3
"""Largest relative noise of phase times; with more, models can't be learnt."""

Tolerance = Annotated[float, option("T", "Relative spread of times that counts as balanced.")]


def experiment(compute: Callable[..., Any]) -> Callable[..., None]:
    """Make the command of a function that returns an ExperimentResult: add --plot and --json."""

    def run(plot: Plot = None, force: Force = False, json: Json = False, **values: Any) -> None:
        if plot is not None:
            from hetsched.cli.plots.figure import check

            check(plot, force)  # before anything is computed
        result: ExperimentResult = compute(**values)
        if plot is not None:
            from hetsched.cli.plots.charts import figure
            from hetsched.cli.plots.figure import save

            save(figure(result), plot, force)
            note(f"plot: {plot}")
        _print(result, json)

    own = inspect.signature(compute, eval_str=True).parameters.values()
    *common, _ = inspect.signature(run, eval_str=True).parameters.values()
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in (*own, *common)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


def _print(result: ExperimentResult, json: bool) -> None:
    if json:
        tables = [
            {"title": t.title, "rows": [dict(zip(t.columns, row, strict=True)) for row in t.rows]}
            for t in result.tables
        ]
        about = {"experiment": result.experiment, "source": result.source}
        out_json({"schema": "hetsched.simulate/1", **about, "tables": tables})
        return
    out(f"{result.experiment}: {result.source}")
    for table in result.tables:
        out("")
        out(table.title)
        rows = [[_text(cell) for cell in row] for row in table.rows]
        out_table(table.columns, rows, table.names, width())


def _text(cell: Cell) -> str:
    """Format a cell; differences below a ten-thousandth are rounding errors."""
    if isinstance(cell, float):
        return number(round(cell, 4))
    return "-" if cell is None else str(cell)


@experiment
def clarke(
    rows: Annotated[
        list[int] | None,
        option("N", "Matrix rows; may be repeated. [default: 8000, 11000, 12000]"),
    ] = None,
    reserve: Annotated[
        int | None, option("SIZE", "Memory not used by the matrix. [default: 44MiB]", parse_size)
    ] = None,
    factor: Annotated[float | None, option("F", "Slow-down by paging. [default: 75]")] = None,
    width: Annotated[
        float | None, option("W", "Part of the memory over which paging sets in. [default: 0.05]")
    ] = None,
    linear: Annotated[
        Literal["time", "speed"], typer.Option(help="What changes linearly while it sets in.")
    ] = "time",
    tolerance: Tolerance = 0.05,
    sweep: Annotated[
        bool, switch("Try 72 settings of size, reserve and paging.", "--sweep")
    ] = False,
) -> Any:
    from hetsched.simulate.papers.clarke import ClarkeSetting, run_experiment, run_sweep

    if sweep:
        values = {"--rows": rows, "--reserve": reserve, "--factor": factor, "--width": width}
        for flag, value in values.items():
            if value is not None:
                raise UsageError(f"{flag} can't be used with --sweep, which has its own settings")
        return run_sweep(linear, tolerance=tolerance)
    memory = (CLARKE_RESERVE if reserve is None else reserve) / MIB
    factor = CLARKE_FACTOR if factor is None else factor
    width = CLARKE_WIDTH if width is None else width
    like = ClarkeSetting(11000, memory, factor, width, linear)
    loads = tuple(rows or (8000, 11000, 12000))
    return run_experiment(loads, like=like, tolerance=tolerance)


@experiment
def dfpa(
    platforms: Annotated[
        int, option("N", "Random platforms of each kind.", integers(1, 10_000))
    ] = 200,
    seed: Seed = 1,
    tolerance: Tolerance = 0.1,
) -> Any:
    from hetsched.simulate.papers.dfpa import run_experiment

    return run_experiment(platforms, seed=seed, tolerance=tolerance)


@experiment
def nec(
    nodes: Annotated[
        list[int] | None,
        option("N", "Nodes of a random cluster; may be repeated. [default: 4, 16, 64]"),
    ] = None,
    seed: Seed = 1,
) -> Any:
    from hetsched.simulate.papers.nec import run_experiment

    return run_experiment(tuple(nodes or (4, 16, 64)), seed=seed)


@experiment
def ilic(
    tolerance: Tolerance = 0.08,
    noise: Annotated[float, option("S", "Noise of random loops' times; 0.02 is 2 %.")] = 0.02,
    seed: Seed = 1,
) -> Any:
    from hetsched.simulate.papers.ilic import run_experiment

    return run_experiment(tolerance=tolerance, noise=noise, seed=seed)


@experiment
def machine(
    profile: Annotated[str, option("NAME|FILE", "desktop, h100, or a .toml file.")],
    runs: Annotated[
        int | None, option("N", "Learn the models in N runs.", integers(1, 1000))
    ] = None,
    noise: Annotated[
        float | None, option("S", "Noise of the runs' times. [default: 0.02]")
    ] = None,
    seed: Seed = 1,
    total: Annotated[
        Literal["planned", "measured"] | None,
        option(
            "planned|measured",
            "Weigh shares by their best plan or by the last run. [default: planned]",
        ),
    ] = None,
) -> Any:
    from hetsched.config import load_profile
    from hetsched.simulate import machine_tables
    from hetsched.simulate.profile import machine_of

    for flag, value in (("--noise", noise), ("--total", total)):
        if value is not None and runs is None:
            raise UsageError(f"{flag} needs --runs: without it nothing is measured")
    if noise is not None and not 0 <= noise <= MAX_NOISE:
        raise UsageError(f"--noise {noise:g}: must be 0 to {MAX_NOISE:g}")
    config, source = load_profile(profile)
    subject = machine_of(config, source)
    if runs is None:
        return machine_tables.plan_result(subject, source)
    return machine_tables.learning_result(
        subject, source, runs, noise=0.02 if noise is None else noise, seed=seed,
        uses_measured_total=total == "measured",
    )  # fmt: skip


class Experiments(Group):
    """The papers, by their names, and `machine`."""

    noun = "experiment"
    members = {
        "clarke": (clarke, "Balance Jacobi on machines with little memory (Clarke 2011)."),
        "dfpa": (dfpa, "Partition without prior models (DFPA, Lastovetsky 2010)."),
        "nec": (nec, "Balance by wait times (NEC, US 9,038,088)."),
        "ilic": (ilic, "Balance a GPU and three cores with overlap (Ilic 2012)."),
        "machine": (machine, "Plan and simulate any machine."),
    }


simulate = group(
    "Simulate the papers' experiments and whole machines.", Experiments,
    "EXPERIMENT [FLAGS]...",
)  # fmt: skip
