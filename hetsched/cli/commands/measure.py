"""`hetsched models measure WORKLOAD`: repeat chosen sizes until their times are accurate.

A measuring job gives every device the same number of units in one chunk, so that copies and kernel
don't overlap. All devices run at once, as in other jobs: cores that share memory are slower then.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec.structs import replace

from hetsched import paths
from hetsched import workload as workloads
from hetsched.cli import interrupts
from hetsched.cli.commands.models import knot_record, percent
from hetsched.cli.flags import ConfigName, Json, integers, numbers, option
from hetsched.cli.jobs import error_of
from hetsched.cli.progress import JobNotes, stop, watch_until
from hetsched.cli.terminal import answer, note
from hetsched.cli.workloads import workload_command
from hetsched.errors import Cancelled, Unavailable, UsageError
from hetsched.job import Ended, JobSpec
from hetsched.models.measuring import MeasurementCase, MeasurementSchedule
from hetsched.text import columns, named_rows, number
from hetsched.units import closest_hint, counted, parse_time

if TYPE_CHECKING:
    from hetsched.local import Local
    from hetsched.workload import BaseWorkload

DEFAULT_SIZES = 6  # Number of sizes measured without --sizes: the load, half of it, and so on


# ---- the command


def fraction(text: str) -> float:
    """Read "2.5%" or "0.025" as 0.025. Raises UsageError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*", text, re.ASCII)
    value = float(match[1]) / (100 if match[2] else 1) if match else math.nan
    if not 0 < value < 1:
        raise UsageError(f"{text}: must be between 0% and 100%, e.g. 2.5%")
    return value


@workload_command("devices", "memory_limit", "seed", refused="it's measured while it runs; run it")
def measure(
    spec: JobSpec,
    sizes: Annotated[
        list[Any] | None,
        option("N,N,...", "Units per device. [default: load, load/2, ...]", numbers(1)),
    ] = None,
    until: Annotated[
        float, option("P%", "Half-width of each confidence interval.", fraction, shown="2.5%")
    ] = 0.025,
    most: Annotated[int, option("N", "Maximum repeats.", integers(1, 10_000))] = 30,
    within: Annotated[
        float, option("TIME", "End after that time, e.g. 10m.", parse_time, shown="60s")
    ] = 60.0,
    variant: Annotated[str | None, option("NAME", "Measure only this variant.")] = None,
    json: Json = False,
    config: ConfigName = None,
) -> None:
    workload = workloads.find(spec.workload)
    params = workload.infer(spec.params, {})
    load = workload.load(params)
    halves = [max(1, load >> shift) for shift in range(DEFAULT_SIZES)]
    units = sorted({size for each in sizes or [halves] for size in each})
    workload.resized(params, max(units))
    with interrupts.engine(config) as local:
        variants = _variants_by_device(local, spec, workload, params, variant)
        if not variants:
            raise UsageError("nothing to measure: no device has a variant of this workload")
        teams = [info.name for info in local.devices()[0] if info.members]
        schedule = MeasurementSchedule(units, variants, until, most, teams)
        _run_all(local, spec, workload, params, schedule, time.monotonic() + within)
    about = {"workload": spec.workload, "params": msgspec.to_builtins(params)}
    record = _record(schedule)
    following = f"next: hetsched models show {spec.workload} prints every curve"
    answer(json, "models.measure/1", {**about, **record}, [*_lines(record, most), following])


def _variants_by_device(
    local: Local, spec: JobSpec, workload: BaseWorkload, params: msgspec.Struct, chosen: str | None
) -> dict[str, list[str]]:
    """Return device -> the variants to measure it with, those last that must be tuned before.

    Raises UsageError (an unknown device or variant), Unavailable (a device isn't available).
    """
    from hetsched.engine.admission.check import select_devices

    infos, absent = local.devices()
    names = select_devices(spec.devices, infos, absent)
    cache = str(paths.cache_dir())
    found: dict[str, list[str]] = {}
    for info in infos:
        if info.name in names:
            kinds = workload.variants(info.variant_kind)
            able = [each for each in kinds if each.threaded or not info.members]
            able.sort(key=lambda v: v.tuning_left(params, info.threads, cache).is_needed)
            found[info.name] = [each.name for each in able]
            if info.is_modelled and chosen is None:
                del found[info.name][1:]  # its times don't depend on the variant
    if chosen is not None:
        installed = list(dict.fromkeys(name for names in found.values() for name in names))
        if chosen not in installed:
            raise UsageError(f"--variant {chosen}: not installed{closest_hint(chosen, installed)}")
        found = {device: [chosen] for device, names in found.items() if chosen in names}
    return {device: names for device, names in found.items() if names}


# ---- what was measured


def _record(schedule: MeasurementSchedule) -> dict[str, Any]:
    """Return the outcome as JSON; an unknown half-width `within` is null."""
    measured: list[dict[str, Any]] = [
        {
            "device": device,
            "variant": variant,
            "units": units,
            "within": case.half_width(device),
            "curves": {name: knot_record(knot) for name, knot in case.knots(device).items()},
        }
        for (device, variant, units), case in schedule.measured().items()
    ]
    return {
        "until": schedule.until,
        "narrow": all(one["within"] <= schedule.until for one in measured),
        "time_is_up": not all(map(schedule.is_done, schedule.cases)),
        "jobs": sum(case.repeats for case in schedule.cases),
        "late": sum(case.late for case in schedule.cases),
        "measured": measured,
    }


def _lines(record: Mapping[str, Any], most: int) -> list[str]:
    """Return a row for each size, and what of the accuracy asked for is missing."""
    rows = []
    for one in record["measured"]:
        if total := one["curves"].get("total"):
            units, seconds = one["units"], total["seconds"]
            cells = (str(units), f"{seconds:.4g}", number(units / seconds))
            within = percent(one["within"])
            rows.append((one["device"], one["variant"], *cells, within, str(total["count"])))
    header = ("device", "variant", "units", "seconds", "units/s", "within", "times")
    text = columns(header, rows, left_columns=2)
    count, until = len(record["measured"]), percent(record["until"])
    wide = sum(one["within"] > record["until"] for one in record["measured"])
    if wide and record["time_is_up"]:
        text.append(
            f"note: the time is up; {count - wide} of {count} are within {until}, and all times"
            " are kept; --within 10m goes on for longer"
        )
    elif wide:
        text.append(
            f"note: {wide} of {count} aren't within {until} after {counted(most, 'repeat')};"
            " use a quieter machine or --most N"
        )
    if record["late"]:
        phases = counted(record["late"], "phase")
        text.append(f"late: {phases} took longer than modelled; the times aren't valid")
    return text


# ---- running it


def _run_all(
    local: Local,
    spec: JobSpec,
    workload: BaseWorkload,
    params: msgspec.Struct,
    schedule: MeasurementSchedule,
    ends_at: float,
) -> None:
    """Run jobs until all cases are done, or until `ends_at` (monotonic), when the last is stopped.

    Raises Cancelled on Ctrl-C, and the error of a job that failed.
    """
    view = JobNotes()
    try:
        while time.monotonic() < ends_at and (case := schedule.ask()) is not None:
            load = case.units * len(case.variants)
            resized = msgspec.to_builtins(workload.resized(params, load))
            names = dict(case.variants)
            job = local.run(replace(spec, params=resized, devices=tuple(names), measure=names))
            try:
                state = watch_until(job, view, ends_at)
                if not isinstance(state, Ended):
                    job.cancel()
                    state = watch_until(job, view)
            except KeyboardInterrupt:
                stop(job, local, view)
                raise
            error = error_of(state)
            if isinstance(error, Unavailable) and len(schedule.cases) > 1:
                schedule.cases.remove(case)
                note(f"skipped: {error}")
            elif error is None and job.report is not None:
                case.add(job.report.devices)
                if schedule.is_done(case):
                    _note_end(case)
            elif error is not None and not isinstance(error, Cancelled):
                raise error
    except KeyboardInterrupt:
        jobs = counted(sum(case.repeats for case in schedule.cases), "job")
        raise Cancelled(f"interrupted; the measurements of {jobs} are kept") from None


def _note_end(case: MeasurementCase) -> None:
    """Say "8 units: pyfftw on cpu0, emu0: within 0.5 % after 3 repeats"."""
    devices: dict[str, list[str]] = {}
    for device, variant in case.variants.items():
        devices.setdefault(variant, []).append(device)
    parts = "; ".join(f"{variant} on {named_rows(names)}" for variant, names in devices.items())
    accuracy = f"within {percent(case.half_width())} after {counted(case.repeats, 'repeat')}"
    note(f"{counted(case.units, 'unit')}: {parts}: {accuracy}")
