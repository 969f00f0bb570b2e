"""`hetsched models import FILE`: add an export's observations to the models."""

from __future__ import annotations

from typing import Annotated

import typer

from hetsched import paths
from hetsched.cli.output.terminal import clean, out, out_json
from hetsched.cli.request_flags import Json
from hetsched.units import counted

SCHEMA = "hetsched.models.import/1"


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Export; - for standard input.")],
    json: Json = False,
) -> None:
    """Add the observations of an export to the models."""
    from hetsched.cli.commands.models.export_file import read
    from hetsched.store.model_records import restore

    added = restore(paths.models_path(), read(file))
    if json:
        counts = {"new": added["new"], "grown": added["extended"], "known": added["unchanged"]}
        out_json({"schema": SCHEMA, "file": file, **counts})
        return
    new = counted(added["new"], "new model")
    others = f"{added['extended']} extended, {added['unchanged']} unchanged"
    out(clean(f"imported {file}: {new}, {others}"))
