"""`hetsched models`: what was learnt about this machine. No daemon needed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hetsched import paths
from hetsched.cli.request import Json
from hetsched.cli.say import columns, number, out, out_json

SCHEMA = "hetsched.models/1"


def models(
    workload: Annotated[
        str | None, typer.Argument(metavar="[WORKLOAD]", help="Only of this one.")
    ] = None,
    json: Json = False,
) -> None:
    """Show the speeds that were learnt: units a second at the largest load seen."""
    found = [entry for entry in _entries() if workload in (None, entry["workload"])]
    if json:
        out_json({"schema": SCHEMA, "models": found})
        return
    if not found:
        out("nothing learnt yet; try: hetsched run fft --batch 64x512x512")
        return
    header = ("workload", "of", "device", "variant", "place", "runs", "points", "units", "units/s")
    rows = [
        (
            entry["workload"],
            of(entry["speed_key"]),
            entry["device"],
            f"{entry['variant']} {entry['version']}",
            entry["place"],
            str(entry["runs"]),
            str(len(entry["points"])),
            number(entry["points"][-1][0]),
            number(entry["points"][-1][0] / entry["points"][-1][1]),
        )
        for entry in found
    ]
    for line in columns(header, rows, left=5):
        out(line)


def of(speed_key: str) -> str:
    """A model's speed key for people: "512x512 complex64, 23.6 Mflop a unit"."""
    *arrays, flops = speed_key.split(" ")
    shapes = [" ".join(array.split(":")[2:]) for array in arrays if array.count(":") == 3]
    try:
        work = f"{float(flops) / 1e6:.3g} Mflop a unit"
    except ValueError:
        return speed_key
    return ", ".join([*dict.fromkeys(shapes), work])


def _entries() -> list[dict[str, Any]]:
    """One a model; `points` are (units, seconds) of the total curve. Looking makes no file."""
    path = paths.models_path()
    if not path.exists():
        return []
    from hetsched.store.models import ModelStore

    store = ModelStore(path)
    try:
        entries = []
        keys = store.keys()
        for key in keys:
            model: Any = store.load(key)
            if model is not None and len(model.total.points):
                fields = {name: getattr(key, name) for name in key.__struct_fields__}
                points = [(float(x), float(t)) for x, t in model.total.points]
                entries.append({**fields, "runs": store.runs(key), "points": points})
        return entries
    finally:
        store.close()
