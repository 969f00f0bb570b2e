"""`hetsched models export [FILE]`: all models as one JSON object, for `import`."""

from __future__ import annotations

from typing import Annotated

import typer

from hetsched import paths
from hetsched.cli.commands.models.selection import Device, check_workload, select
from hetsched.cli.output.terminal import clean, clean_json, note, out
from hetsched.cli.request_flags import Force
from hetsched.units import counted

STANDARD_OUTPUT = "-"


def command(
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="Output file; - for standard output.")
    ] = STANDARD_OUTPUT,
    workload: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only models of this workload.")
    ] = None,
    device: Device = None,
    force: Force = False,
) -> None:
    """Export all observations and races of variants as JSON."""
    import msgspec

    from hetsched.store.model_records import collect, encode
    from hetsched.store.output_files import write_whole

    export = collect(paths.models_path())
    if workload is not None:
        check_workload(workload, export.models)
    models = tuple(select(export.models, workload, device))
    races = export.races_of(models)
    raw = encode(msgspec.structs.replace(export, models=models, races=races))
    if file == STANDARD_OUTPUT:
        out(clean_json(raw.decode().rstrip("\n")))
        return
    write_whole(file, raw, force)
    note(clean(f"exported {counted(len(models), 'model')} to {file}"))
