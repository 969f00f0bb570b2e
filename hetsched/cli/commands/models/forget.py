"""`hetsched models forget`: delete models; later runs learn them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hetsched import paths
from hetsched.cli.commands.models.selection import (
    Device,
    OptionalWorkload,
    check_workload,
    matches_device,
)
from hetsched.cli.output.terminal import clean, out, out_json
from hetsched.cli.request_flags import Json
from hetsched.errors import UsageError
from hetsched.units import counted

if TYPE_CHECKING:
    from hetsched.store.model_records import ModelKey

SCHEMA = "hetsched.models.forget/1"


def command(
    workload: OptionalWorkload = None,
    device: Device = None,
    variant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this variant, e.g. pyfftw.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All models.")] = False,
    json: Json = False,
) -> None:
    """Delete models; later runs learn them again."""
    from hetsched.store.model_records import collect, forget

    has_filter = any(value is not None for value in (workload, device, variant))
    if everything == has_filter:
        raise UsageError("forget which models? Give WORKLOAD, --device or --variant; or --all")
    path = paths.models_path()
    if workload is not None:
        check_workload(workload, collect(path).models)

    def is_chosen(key: ModelKey) -> bool:
        return (
            workload in (None, key.workload)
            and (device is None or matches_device(key.device, device))
            and variant in (None, key.variant)
        )

    forgotten = forget(path, is_chosen)
    if json:
        out_json({"schema": SCHEMA, "forgotten": forgotten})
        return
    if not forgotten:
        out("no such models")
        return
    out(clean(f"forgot {counted(len(forgotten), 'model')}"))
