"""`hetsched simulate machine`: any machine, planned and played."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from hetsched.cli.commands.simulate.common import Plot, Seed, checked, show
from hetsched.cli.request_flags import Force, Json
from hetsched.errors import UsageError

MOST_RUNS = 1000
MOST_NOISE = 0.3
"""Of phases' times; with more nothing could be learnt."""
NOISE, SEED = 0.02, 1
"""Where the flags don't say."""


def machine(
    profile: Annotated[
        str,
        typer.Option(metavar="NAME|FILE", help="desktop, h100, or a .toml file: devices, a load."),
    ],
    runs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=MOST_RUNS, help="From nothing, learning on the way."),
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(metavar="S", help="Of the runs' times; 0.02 is 2 %. [default: 0.02]"),
    ] = None,
    seed: Seed = SEED,
    total: Annotated[
        Literal["planned", "measured"] | None,
        typer.Option(
            help="By what a share is weighed: the best plan for it, or as Ilic & Sousa do, what"
            " the last ones took. [default: planned]"
        ),
    ] = None,
    plot: Plot = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Plan and play any machine: its costs known, or learnt in so many runs."""
    from hetsched.config import load_profile
    from hetsched.simulate import machine_report as experiment
    from hetsched.simulate.profile import machine_of

    _check(runs, noise, total)
    checked(plot, force)
    found, source = load_profile(profile)
    subject = machine_of(found, source)
    if runs is None:
        show(experiment.plan_report(subject, source), plot, force, json)
        return
    report = experiment.loop_report(
        subject, source, runs, noise=NOISE if noise is None else noise, seed=seed,
        measured_total=total == "measured",
    )  # fmt: skip
    show(report, plot, force, json)


def _check(runs: int | None, noise: float | None, total: str | None) -> None:
    for flag, value in (("--noise", noise), ("--total", total)):
        if value is not None and runs is None:
            raise UsageError(f"{flag} needs --runs: with known costs nothing is measured")
    if noise is not None and not 0 <= noise <= MOST_NOISE:
        raise UsageError(f"--noise {noise:g}: it must be 0 to {MOST_NOISE:g}")
