"""`hetsched models forget`: drop what was learnt; runs will learn it anew."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from hetsched import paths
from hetsched.cli.commands.models.selection import AnyWorkload, Device, check_workload, is_called
from hetsched.cli.output.terminal import clean, out, out_json
from hetsched.cli.request_flags import Json
from hetsched.errors import UsageError
from hetsched.units import counted

SCHEMA = "hetsched.models.forget/1"


def command(
    workload: AnyWorkload = None,
    device: Device = None,
    variant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this variant only: pyfftw.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything that was learnt.")] = False,
    json: Json = False,
) -> None:
    """Forget the models of a workload, a device, a variant, or all; jobs that run go on."""
    from hetsched.store.catalogue import collect, forget

    said = (workload, device, variant)
    if everything == any(word is not None for word in said):
        raise UsageError("forget what? Name a WORKLOAD, --device or --variant; or all with --all")
    path = paths.models_path()
    if workload is not None:
        check_workload(workload, collect(path).models)
    gone = forget(
        path,
        lambda key: (
            workload in (None, key.workload)
            and (device is None or is_called(key.device, device))
            and variant in (None, key.variant)
        ),
    )
    if json:
        out_json({"schema": SCHEMA, "forgotten": [msgspec.to_builtins(key) for key in gone]})
        return
    what = "nothing like that was known" if not gone else f"forgot {counted(len(gone), 'model')}"
    out(clean(what))
