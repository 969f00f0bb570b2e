"""`hetsched simulate machine`: any machine, planned and simulated."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from hetsched.cli.commands.simulate.results import Plot, Seed, check_plot, show
from hetsched.cli.integer_parser import integers
from hetsched.cli.request_flags import Force, Json
from hetsched.errors import UsageError

MAX_RUNS = 1000
MAX_NOISE = 0.3
"""Largest relative noise of phase times; with more, models can't be learnt."""
DEFAULT_NOISE, DEFAULT_SEED = 0.02, 1


def machine(
    profile: Annotated[
        str,
        typer.Option(metavar="NAME|FILE", help="desktop, h100, or a .toml file."),
    ],
    runs: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=integers(1, MAX_RUNS), help="Learn the models in N runs."
        ),
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(metavar="S", help="Noise of the runs' times. [default: 0.02]"),
    ] = None,
    seed: Seed = DEFAULT_SEED,
    total: Annotated[
        Literal["planned", "measured"] | None,
        typer.Option(
            metavar="planned|measured",
            help="Weigh shares by their best plan or by the last run. [default: planned]",
        ),
    ] = None,
    plot: Plot = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Plan and simulate any machine."""
    from hetsched.config import load_profile
    from hetsched.simulate import machine_tables as experiment
    from hetsched.simulate.profile import machine_of

    _check(runs, noise, total)
    check_plot(plot, force)
    config, source = load_profile(profile)
    subject = machine_of(config, source)
    if runs is None:
        show(experiment.plan_result(subject, source), plot, force, json)
        return
    result = experiment.learning_result(
        subject, source, runs, noise=DEFAULT_NOISE if noise is None else noise, seed=seed,
        uses_measured_total=total == "measured",
    )  # fmt: skip
    show(result, plot, force, json)


def _check(runs: int | None, noise: float | None, total: str | None) -> None:
    for flag, value in (("--noise", noise), ("--total", total)):
        if value is not None and runs is None:
            raise UsageError(f"{flag} needs --runs: without it nothing is measured")
    if noise is not None and not 0 <= noise <= MAX_NOISE:
        raise UsageError(f"--noise {noise:g}: must be 0 to {MAX_NOISE:g}")
