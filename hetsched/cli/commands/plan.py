"""`hetsched plan WORKLOAD`: what would happen, without a daemon and without running anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hetsched.cli import workload_flags
from hetsched.cli.output import explanation
from hetsched.cli.request_flags import ConfigName, Json, MemoryLimit, Request, gather
from hetsched.config import load


def group() -> Any:
    return workload_flags.group(
        "plan", plan, "Say what a job would do, without running it.", _common
    )


def _common(
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE", help="A .npy file, of which the header is read."),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE", help="As if results went there; none is made."),
    ] = None,
    devices: Annotated[
        str | None, typer.Option(metavar="A,B", help="Names and groups: cpu, cpu0, gpu, gpu0.")
    ] = None,
    memory_limit: MemoryLimit = None,
) -> Request:
    return gather(input=input, output=output, devices=devices, memory_limit=memory_limit)


def plan(
    name: str,
    given: Mapping[str, Any],
    request: Request,
    trace: explanation.Trace = None,
    plot: explanation.Plot = None,
    force: explanation.ForceFiles = False,
    json: Json = False,
    config: ConfigName = None,
) -> None:
    """Plan the workload `name`."""
    explanation.check(trace, plot, force)
    settings, _ = load(config)
    from hetsched.engine.planning.preview import preview

    account = preview(request.spec(name, given), settings)
    explanation.write(account, trace, plot, force)
    explanation.show(account, json)
