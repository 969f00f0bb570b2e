"""`hetsched models [list] [WORKLOAD]`: one line a model."""

from __future__ import annotations

from typing import Any

from hetsched import paths
from hetsched.cli.commands.models.labels import of, percent
from hetsched.cli.commands.models.selection import AnyWorkload, Device, check_workload, chosen
from hetsched.cli.output.terminal import clean, columns, number, out, out_json
from hetsched.cli.request_flags import Json

SCHEMA = "hetsched.models/2"
HEADER = (
    "workload", "of", "device", "variant", "storage",
    "runs", "points", "units", "units/s", "within",
)  # fmt: skip


def command(workload: AnyWorkload = None, device: Device = None, json: Json = False) -> None:
    """Show the speeds that were learnt: units a second at the largest load seen."""
    from hetsched.store.catalogue import collect

    known = collect(paths.models_path()).models
    if workload is not None:
        check_workload(workload, known)
    entries = [one for one in map(entry, chosen(known, workload, device)) if one]
    if json:
        out_json({"schema": SCHEMA, "models": entries})
        return
    if not entries:
        which = "" if workload is None else f" of {workload!r}"
        out(clean(f"nothing learnt yet{which}; try: hetsched run fft --batch 64x512x512"))
        return
    for line in columns(HEADER, [_row(one) for one in entries], left=5):
        out(line)


def entry(learnt: Any) -> dict[str, Any] | None:
    """One model as JSON; `points` are (units, seconds) of the total curve. None: it has none."""
    model = learnt.history().model()
    knots = learnt.knots("total")
    if model is None or not knots:
        return None
    key = learnt.key
    return {
        **{name: getattr(key, name) for name in key.__struct_fields__},
        "runs": learnt.runs,
        "points": [(float(x), float(t)) for x, t in model.total.points],
        "within": knots[-1].half_width,
    }


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    units, seconds = one["points"][-1]
    return (
        one["workload"],
        of(one["speed_key"]),
        one["device"],
        f"{one['variant']} {one['version']}",
        one["storage"],
        str(one["runs"]),
        str(len(one["points"])),
        number(units),
        number(units / seconds),
        percent(one["within"]),
    )
