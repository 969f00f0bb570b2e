"""`hetsched models [list] [WORKLOAD]`: one line per model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched import paths
from hetsched.cli.commands.models.records import KeyFields, key_fields
from hetsched.cli.commands.models.selection import (
    Device,
    OptionalWorkload,
    check_workload,
    select,
)
from hetsched.cli.output.model_labels import percent, work_label
from hetsched.cli.output.terminal import clean, columns, number, out, out_json
from hetsched.cli.request_flags import Json

if TYPE_CHECKING:
    from hetsched.store.model_records import StoredModel

SCHEMA = "hetsched.models/2"
HEADER = (
    "workload", "of", "device", "variant", "storage", "beside",
    "runs", "points", "units", "units/s", "within",
)  # fmt: skip


class ModelSummary(KeyFields, frozen=True, kw_only=True):
    """One model as JSON; `points` are (units, seconds) of the total curve."""

    runs: int
    points: list[tuple[float, float]]
    within: float


def command(workload: OptionalWorkload = None, device: Device = None, json: Json = False) -> None:
    """List models with their speed at the largest size measured."""
    from hetsched.store.model_records import collect

    models = collect(paths.models_path()).models
    if workload is not None:
        check_workload(workload, models)
    chosen = select(models, workload, device)
    summaries = [summary for model in chosen if (summary := _summary(model)) is not None]
    if json:
        out_json({"schema": SCHEMA, "models": summaries})
        return
    if not summaries:
        subject = "" if workload is None else f" of {workload!r}"
        out(clean(f"no models{subject} yet; try: hetsched run fft --batch 64x512x512"))
        return
    for line in columns(HEADER, [_row(summary) for summary in summaries], left_columns=6):
        out(line)


def _summary(model: StoredModel) -> ModelSummary | None:
    """Summarise one model; None if it has no points."""
    speeds = model.history().model()
    knots = model.knots("total")
    if speeds is None or not knots:
        return None
    points = getattr(speeds.total, "points", ())
    return ModelSummary(
        **key_fields(model.key),
        runs=model.runs,
        points=[(float(units), float(seconds)) for units, seconds in points],
        within=knots[-1].half_width,
    )


def _row(summary: ModelSummary) -> tuple[str, ...]:
    units, seconds = summary.points[-1]
    return (
        summary.workload,
        work_label(summary.speed_key),
        summary.device,
        f"{summary.variant} {summary.version}",
        summary.storage,
        summary.co_runners,
        str(summary.runs),
        str(len(summary.points)),
        number(units),
        number(units / seconds),
        percent(summary.within),
    )
