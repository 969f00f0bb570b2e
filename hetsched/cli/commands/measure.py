"""`hetsched models measure WORKLOAD`: repeat chosen sizes until their times are accurate.

A measuring job gives every device the same number of units in one chunk, so that copies and kernel
don't overlap. All devices run at once, as in other jobs: cores that share memory are slower then.
Sizes alternate, so that a disturbance doesn't affect all repeats of one. A size is repeated until
its confidence interval is narrow (Khaleghzadeh, Reddy & Lastovetsky, HPOPTA, TPDS 2018: 2.5 %).
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec.structs import replace

from hetsched import paths
from hetsched import workload as workloads
from hetsched.cli import interrupts
from hetsched.cli.commands.models import CURVES, knot_record, percent
from hetsched.cli.flags import ConfigName, Json, integers, numbers, option
from hetsched.cli.jobs import error_of
from hetsched.cli.progress import JobNotes, stop, watch_until
from hetsched.cli.terminal import answer, note
from hetsched.cli.workloads import workload_command
from hetsched.errors import Cancelled, Unavailable, UsageError
from hetsched.job import DeviceReport, Ended, JobSpec
from hetsched.models import Knot
from hetsched.models.confidence import knot_of
from hetsched.text import columns, named_rows, number
from hetsched.units import closest_hint, counted, parse_time

if TYPE_CHECKING:
    from hetsched.local import Local
    from hetsched.models.samples import CurveName
    from hetsched.workload import BaseWorkload

DEFAULT_SIZES = 6  # Number of sizes measured without --sizes: the load, half of it, and so on
MIN_REPEATS = 3  # Minimum repeats of a size before its interval counts


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
        teams = [info.name for info in local.devices()[0] if info.members]
        schedule = MeasurementSchedule(units, variants, until, most, teams)
        _run_all(local, spec, workload, params, schedule, time.monotonic() + within)
    about = {"workload": spec.workload, "params": msgspec.to_builtins(params)}
    following = f"next: hetsched models show {spec.workload} prints every curve"
    record = schedule.record()
    answer(json, "models.measure/1", {**about, **record}, [*schedule.report(), following])


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


# ---- what to measure next, and what was measured


@dataclass(eq=False)
class MeasurementCase:
    """One job to repeat, and its times: `units` on each device, each with a variant.

    All repeats count; drift during the measurement counts as noise.
    """

    units: int
    variants: Mapping[str, str]  # Device -> variant
    repeats: int = 0
    late: int = 0  # Phases of emulated devices that took longer than modelled
    seconds: dict[tuple[str, CurveName], list[float]] = field(default_factory=dict)
    """Device, curve -> of each repeat; "total" first."""

    @property
    def load(self) -> int:
        return self.units * len(self.variants)

    def add(self, devices: Iterable[DeviceReport]) -> None:
        """Add a repeat; of phases only those of a share in one chunk have its size."""
        self.repeats += 1
        for each in devices:
            self.late += each.late
            copies = each.copy_in_seconds, each.copy_out_seconds
            has_phases = each.chunks == (self.units,) and any(copies)
            phases = (each.compute_seconds, *copies) if has_phases else ()
            for curve, value in zip(CURVES, (each.seconds, *phases), strict=False):
                if value > 0:
                    self.seconds.setdefault((each.device, curve), []).append(value)

    def knots(self, device: str) -> dict[str, Knot]:
        """Return curve -> the evidence."""
        return {
            curve: knot_of(float(self.units), repeats)
            for (of_device, curve), repeats in self.seconds.items()
            if of_device == device
        }

    def half_width(self, device: str | None = None) -> float:
        """Return that of the widest confidence interval, relative to its median."""
        devices = self.variants if device is None else [device]
        widths = [[knot.half_width for knot in self.knots(d).values()] for d in devices]
        return max(max(of_device, default=math.inf) for of_device in widths)

    def __str__(self) -> str:
        """Return "8 units: pyfftw on core0, core1, emu0"; many cores become one word."""
        groups: dict[str, list[str]] = {}
        for device, variant in self.variants.items():
            groups.setdefault(variant, []).append(device)
        parts = [f"{variant} on {named_rows(names)}" for variant, names in groups.items()]
        return f"{counted(self.units, 'unit')}: {'; '.join(parts)}"


class MeasurementSchedule:
    """Which case is next: sizes alternate until each is accurate or has had its repeats.

    `sizes`: units per device. `variants`: device -> those to measure; one with fewer than others
    repeats its last one, to keep the machine under its usual load. `until`: the half-width of the
    confidence interval to reach, relative to the median. `separate`: devices measured in jobs of
    their own, as a team uses the cores of others.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        variants: Mapping[str, Sequence[str]],
        until: float,
        max_repeats: int = 30,
        separate: Collection[str] = (),
    ) -> None:
        if not variants:
            raise UsageError("nothing to measure: no device has a variant of this workload")
        self.until = until
        self.max_repeats = max_repeats
        together = {device: names for device, names in variants.items() if device not in separate}
        apart = [{device: names} for device, names in variants.items() if device in separate]
        self.cases = [
            MeasurementCase(
                size, {d: names[min(turn, len(names) - 1)] for d, names in group.items()}
            )
            for group in [together, *apart]
            for turn in range(max(map(len, group.values()), default=0))
            for size in dict.fromkeys(sizes)
        ]

    def ask(self) -> MeasurementCase | None:
        """Return the case to run next, the one with the fewest repeats; None when all are done."""
        left = (case for case in self.cases if not self.is_done(case))
        return min(left, key=lambda case: case.repeats, default=None)

    def is_done(self, case: MeasurementCase) -> bool:
        has_min_repeats = case.repeats >= min(MIN_REPEATS, self.max_repeats)
        is_narrow = has_min_repeats and case.half_width() <= self.until
        return is_narrow or case.repeats >= self.max_repeats

    def measured(self) -> dict[tuple[str, str, int], MeasurementCase]:
        """Return (device, variant, units) -> its first case, of variants that are repeated."""
        found = {
            (device, variant, case.units): case
            for case in reversed(self.cases)
            for device, variant in case.variants.items()
        }
        return dict(sorted(found.items()))

    def record(self) -> dict[str, Any]:
        """Return the outcome as JSON; an unknown half-width `within` is null."""
        measured: list[dict[str, Any]] = [
            {
                "device": device,
                "variant": variant,
                "units": units,
                "within": case.half_width(device),
                "curves": {name: knot_record(k) for name, k in case.knots(device).items()},
            }
            for (device, variant, units), case in self.measured().items()
        ]
        return {
            "until": self.until,
            "narrow": all(one["within"] <= self.until for one in measured),
            "time_is_up": not all(map(self.is_done, self.cases)),
            "jobs": sum(case.repeats for case in self.cases),
            "late": sum(case.late for case in self.cases),
            "measured": measured,
        }

    def report(self) -> list[str]:
        rows = []
        record = self.record()
        for one in record["measured"]:
            if total := one["curves"].get("total"):
                units, seconds, count = one["units"], total["seconds"], total["count"]
                cells = (str(units), f"{seconds:.4g}", number(units / seconds))
                within = percent(one["within"])
                rows.append((one["device"], one["variant"], *cells, within, str(count)))
        header = ("device", "variant", "units", "seconds", "units/s", "within", "times")
        text = columns(header, rows, left_columns=2)
        count = len(record["measured"])
        wide = sum(one["within"] > self.until for one in record["measured"])
        if wide and record["time_is_up"]:
            text.append(
                f"note: the time is up; {count - wide} of {count} are within"
                f" {percent(self.until)}, and all times are kept; --within 10m goes on for longer"
            )
        elif wide:
            text.append(
                f"note: {wide} of {count} aren't within {percent(self.until)} after"
                f" {counted(self.max_repeats, 'repeat')}; use a quieter machine or --most N"
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
    """Run jobs until all cases are done, or until `ends_at` (monotonic).

    The last job is stopped then, and doesn't count. Raises Cancelled on Ctrl-C, and the error of
    a job that failed.
    """
    view = JobNotes()
    try:
        while time.monotonic() < ends_at and (case := schedule.ask()) is not None:
            resized = msgspec.to_builtins(workload.resized(params, case.load))
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
                    repeats = counted(case.repeats, "repeat")
                    note(f"{case}: within {percent(case.half_width())} after {repeats}")
            elif error is not None and not isinstance(error, Cancelled):
                raise error
    except KeyboardInterrupt:
        jobs = counted(sum(case.repeats for case in schedule.cases), "job")
        raise Cancelled(f"interrupted; the measurements of {jobs} are kept") from None
