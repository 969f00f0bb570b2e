"""`hetsched plan WORKLOAD`: plan a job without running it; no daemon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from hetsched.cli import workload_flags
from hetsched.cli.output import explanation
from hetsched.cli.request_flags import (
    Devices,
    JobOptions,
    Json,
    MemoryLimit,
    ParamValue,
    Schedule,
    job_options,
)
from hetsched.config import load, load_profile, profiles

if TYPE_CHECKING:
    from typer._click import Command


def group() -> Command:
    return workload_flags.group("plan", plan, "Show the plan without running it.", _plan_options)


def _plan_options(
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE", help="Input .npy file; only its header is read."),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE", help="Plan to save there; nothing is written."),
    ] = None,
    devices: Devices = None,
    memory_limit: MemoryLimit = None,
    schedule: Schedule = "best",
) -> JobOptions:
    return job_options(
        input=input, output=output, devices=devices, memory_limit=memory_limit, schedule=schedule
    )


def plan(
    name: str,
    params: Mapping[str, ParamValue],
    options: JobOptions,
    trace: explanation.Trace = None,
    plot: explanation.Plot = None,
    force: explanation.ForceFiles = False,
    json: Json = False,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE", help="A shipped configuration or profile, or a .toml file."
        ),
    ] = None,
) -> None:
    """Plan the workload `name`."""
    explanation.check(trace, plot, force)
    settings, source = load_profile(config) if config in profiles() else load(config)
    from hetsched.engine.planning.preview import preview

    explained = preview(options.spec(name, params), settings, source)
    explanation.write(explained, trace, plot, force)
    explanation.show(explained, json)
