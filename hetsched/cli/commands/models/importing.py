"""`hetsched models import FILE`: add an export to what is known."""

from __future__ import annotations

from typing import Annotated

import typer

from hetsched import paths
from hetsched.cli.output.terminal import clean, out, out_json
from hetsched.cli.request_flags import Json

SCHEMA = "hetsched.models.import/1"


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="An export; -: standard input.")],
    json: Json = False,
) -> None:
    """Add an export's observations to what is known; importing it again changes nothing."""
    from hetsched.cli.commands.models.export_input import read
    from hetsched.store.catalogue import restore

    added = restore(paths.models_path(), read(file))
    if json:
        counts = {"new": added.new, "grown": added.extended, "known": added.unchanged}
        out_json({"schema": SCHEMA, "file": file, **counts})
        return
    out(
        clean(
            f"imported {file}: {added.new} new models, {added.extended} that know more now,"
            f" {added.unchanged} that knew all of it"
        )
    )
