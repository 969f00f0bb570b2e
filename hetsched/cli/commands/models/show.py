"""`hetsched models show WORKLOAD`: every measured size, and a plot of the curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from hetsched import paths
from hetsched.cli.commands.models.records import (
    KeyFields,
    KnotRecord,
    key_fields,
    knot_record,
)
from hetsched.cli.commands.models.selection import Device, WorkloadName, check_workload, select
from hetsched.cli.output.model_labels import percent, work_label
from hetsched.cli.output.race_lines import race_lines, race_summary
from hetsched.cli.output.terminal import clean, columns, note, number, out, out_json
from hetsched.cli.request_flags import Force, Json
from hetsched.errors import InputMissing, UsageError
from hetsched.units import counted, format_seconds

if TYPE_CHECKING:
    from hetsched.models.samples import CurveName
    from hetsched.store.model_records import StoredModel, StoredRaces

SCHEMA = "hetsched.models.show/2"
CURVES: tuple[CurveName, ...] = ("total", "compute", "h2d", "d2h")
HEADER = ("curve", "units", "seconds", "units/s", "within", "times")


class CurveRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One curve as JSON; `gap` (s) and `slope` (s per unit) only for a straight line."""

    knots: list[KnotRecord]
    gap: float | None = None
    slope: float | None = None


class ModelDetails(KeyFields, frozen=True, kw_only=True):
    """One model as JSON."""

    runs: int
    curves: dict[CurveName, CurveRecord]


def command(
    workload: WorkloadName,
    device: Device = None,
    work: Annotated[
        str | None, typer.Option("--of", metavar="TEXT", help="Only parameters like 512x512.")
    ] = None,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw the curves (.png, .svg or .pdf).")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Show every measured size with its confidence interval."""
    models, races = _models(workload, device, work)
    if plot is not None:
        from hetsched.cli.output.plots.model_curves import draw

        draw(workload, models, plot, force)
        note(f"plot: {plot}")
    if json:
        details = [_details(model) for model in models]
        raced = [record for stored in races if (record := race_summary(stored)) is not None]
        out_json({"schema": SCHEMA, "workload": workload, "models": details, "races": raced})
        return
    for model in models:
        for line in _lines(model):
            out(clean(line))
    for line in race_lines(races):
        out(clean(line))


def _models(
    workload: str, device: str | None, work: str | None
) -> tuple[list[StoredModel], tuple[StoredRaces, ...]]:
    """Return the models asked for, and the races of their variants.

    Raises
    ------
    InputMissing
        The workload has no models.
    UsageError
        It has, but none of this device or work.
    """
    from hetsched.store.model_records import collect

    export = collect(paths.models_path())
    check_workload(workload, export.models)
    models = select(export.models, workload, device)
    if not models:
        raise InputMissing(
            f"no models of {workload} yet; run it,"
            f" or measure it: hetsched models measure {workload}"
        )
    if work is None:
        return models, export.races_of(models)
    of_work = [model for model in models if work in work_label(model.speed_key)]
    if not of_work:
        labels = "; ".join(sorted({work_label(model.speed_key) for model in models}))
        raise UsageError(f"--of {work}: no such models; choose from: {labels}")
    return of_work, export.races_of(of_work)


def _details(model: StoredModel) -> ModelDetails:
    curves = {}
    for name in CURVES:
        knots = model.knots(name)
        if knots:
            gap, slope = _line_of(model, name) or (None, None)
            curves[name] = CurveRecord([knot_record(knot) for knot in knots], gap, slope)
    return ModelDetails(**key_fields(model.key), runs=model.runs, curves=curves)


def _line_of(model: StoredModel, name: CurveName) -> tuple[float, float] | None:
    """Return gap (s) and slope (s per unit) of a line, which phases of linked devices have."""
    curve = getattr(model.history().model(), name, None)
    gap, slope = getattr(curve, "gap", None), getattr(curve, "slope", None)
    return None if gap is None or slope is None else (gap, slope)


def _lines(model: StoredModel) -> list[str]:
    key = model.key
    runs = counted(model.runs, "run")
    beside = f"{key.co_runners} of its neighbours busy"
    title = f"{key.device}, {key.variant} {key.version}, {key.storage}, {beside}: {runs}"
    lines = [f"{key.workload} {work_label(key.speed_key)}", title]
    rows = [
        (
            name,
            number(knot.units),
            f"{knot.seconds:.4g}",
            number(knot.units / knot.seconds),
            percent(knot.half_width),
            str(knot.count),
        )
        for name in CURVES
        for knot in model.knots(name)
    ]
    lines += [f"  {line}" for line in columns(HEADER, rows)]
    for name in CURVES:
        line = _line_of(model, name)
        if line is not None:
            gap, slope = map(format_seconds, line)
            lines.append(f"  {name}: {gap} per operation, {slope} per unit")
    return [*lines, ""]
