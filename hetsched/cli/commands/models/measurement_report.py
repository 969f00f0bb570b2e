"""The outcome of a measurement, as table and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hetsched.cli.commands.models.records import KnotRecord, knot_record
from hetsched.cli.output.model_labels import percent
from hetsched.cli.output.terminal import columns, number
from hetsched.units import counted

if TYPE_CHECKING:
    from hetsched.cli.commands.models.measurement_run import MeasurementRun
    from hetsched.cli.commands.models.measurement_schedule import MeasuredSize, MeasurementSchedule

SCHEMA = "hetsched.models.measure/1"
HEADER = ("device", "variant", "units", "seconds", "units/s", "within", "times")


class MeasuredSizeRecord(msgspec.Struct, frozen=True):
    """One device at one size, as JSON; an unknown half-width `within` is null."""

    device: str
    variant: str
    units: int
    within: float
    curves: dict[str, KnotRecord]


class MeasurementRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The object that `--json` prints."""

    schema: str = SCHEMA
    workload: str
    params: dict[str, object]
    until: float
    narrow: bool
    time_is_up: bool
    jobs: int
    late: int
    measured: list[MeasuredSizeRecord]


def record(
    name: str, params: msgspec.Struct, plan: MeasurementSchedule, run: MeasurementRun
) -> MeasurementRecord:
    """Return the outcome as JSON's record."""
    sizes = plan.measured()
    return MeasurementRecord(
        workload=name,
        params=msgspec.to_builtins(params),
        until=plan.until,
        narrow=all(size.half_width <= plan.until for size in sizes),
        time_is_up=run.is_over,
        jobs=run.jobs,
        late=run.late,
        measured=[_size(size) for size in sizes],
    )


def lines(name: str, plan: MeasurementSchedule, run: MeasurementRun) -> list[str]:
    """Return the closing table, warnings, and what to do next."""
    sizes = plan.measured()
    rows = [_row(size) for size in sizes if "total" in size.knots]
    text = columns(HEADER, rows, left_columns=2)
    wide = sum(size.half_width > plan.until for size in sizes)
    if wide and run.is_over:
        text.append(
            f"note: the time is up; {len(sizes) - wide} of {len(sizes)} are within"
            f" {percent(plan.until)}, and all times are kept; --within 10m goes on for longer"
        )
    elif wide:
        text.append(
            f"note: {wide} of {len(sizes)} aren't within {percent(plan.until)} after"
            f" {counted(plan.max_repeats, 'repeat')}; use a quieter machine or --most N"
        )
    if run.late:
        text.append(
            f"late: {counted(run.late, 'phase')} took longer than modelled; the times aren't valid"
        )
    return [*text, f"next: hetsched models show {name} prints every curve"]


def _size(size: MeasuredSize) -> MeasuredSizeRecord:
    curves = {name: knot_record(knot) for name, knot in size.knots.items()}
    within = size.half_width
    return MeasuredSizeRecord(size.device, size.variant, size.units, within, curves)


def _row(size: MeasuredSize) -> tuple[str, ...]:
    total = size.knots["total"]
    return (
        size.device,
        size.variant,
        str(size.units),
        f"{total.seconds:.4g}",
        number(size.units / total.seconds),
        percent(size.half_width),
        str(total.count),
    )
