"""`hetsched models export [FILE]`: all models as one JSON object, for `import` and `diff`."""

from __future__ import annotations

from typing import Annotated

import typer

from hetsched import paths
from hetsched.cli.models.choosing import Device, check_workload, chosen
from hetsched.cli.request import Force
from hetsched.cli.say import clean, note, out
from hetsched.units import counted

STANDARD_OUTPUT = "-"


def command(
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="Where to; none, or -: standard output.")
    ] = STANDARD_OUTPUT,
    workload: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only the models of this workload.")
    ] = None,
    device: Device = None,
    force: Force = False,
) -> None:
    """Write what was learnt, every observation, as JSON."""
    import msgspec

    from hetsched.store.catalogue import collect
    from hetsched.store.exchange import encode
    from hetsched.store.files import write_whole

    export = collect(paths.models_path())
    if workload is not None:
        check_workload(workload, export.models)
    models = tuple(chosen(export.models, workload, device))
    raw = encode(msgspec.structs.replace(export, models=models))
    if file == STANDARD_OUTPUT:
        out(raw.decode().rstrip("\n"))
        return
    write_whole(file, raw, force)
    note(clean(f"exported {counted(len(models), 'model')} to {file}"))
