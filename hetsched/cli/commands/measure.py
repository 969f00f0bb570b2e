"""`hetsched models measure WORKLOAD`: repeat chosen sizes until their times are accurate.

A measuring job gives every device the same number of units in one chunk: its copy in, kernel and
copy out don't overlap, so each phase is measured at exactly that size. All devices run at once, as
in other jobs: cores that share memory are slower then, and planning needs that speed. Sizes
alternate, so that a disturbance of some seconds doesn't affect all repeats of one size. A size is
repeated until its confidence interval is narrow (Khaleghzadeh, Reddy & Lastovetsky, HPOPTA, TPDS
2018: 2.5 %), up to a limit.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from hetsched import workload as workloads
from hetsched.cli import interrupts
from hetsched.cli.commands.models import knot_record, percent
from hetsched.cli.flags import ConfigName, Json, integers, option
from hetsched.cli.jobs import error_of
from hetsched.cli.progress import BAR_WIDTH, LiveTable, grid, has_bars, watch_until
from hetsched.cli.terminal import note, out_json, out_lines
from hetsched.cli.workloads import workload_command
from hetsched.errors import Cancelled, Unavailable, UsageError
from hetsched.job import DeviceReport, Ended, JobSpec, JobState, Running
from hetsched.models import Knot
from hetsched.models.confidence import knot_of
from hetsched.text import MAX_GROUP_ROWS, columns, grouped_rows, number
from hetsched.units import closest_hint, counted, parse_time

if TYPE_CHECKING:
    from hetsched.client.job import Job
    from hetsched.device import DeviceInfo
    from hetsched.local import Local
    from hetsched.workload import BaseWorkload

DEFAULT_SIZES = 6
"""Number of sizes measured without --sizes: the load, half of it, and so on."""
MIN_REPEATS = 3
"""Minimum repeats of a size before its interval counts."""


# ---- the command


def sizes_of(text: str) -> list[int]:
    """Read "4,8,16". Raises UsageError."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not re.fullmatch(r"\d{1,18}", word, re.ASCII) or int(word) == 0:
            raise UsageError(f"{word!r} isn't a number of units; example: --sizes 4,8,16")
    return [int(word) for word in words]


def fraction(text: str) -> float:
    """Read "2.5%" or "0.025" as 0.025. Raises UsageError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*", text, re.ASCII)
    value = float(match[1]) / (100 if match[2] else 1) if match else math.nan
    if not 0 < value < 1:
        raise UsageError(f"{text}: must be between 0% and 100%, e.g. 2.5%")
    return value


def some_time(text: str) -> float:
    """Read a time above 0. Raises UsageError."""
    seconds = parse_time(text)
    if seconds <= 0:
        raise UsageError(f"{text}: must be more than 0, e.g. 10m")
    return seconds


@workload_command("Measure a workload's speed at chosen sizes.", "devices", "memory_limit", "seed")
def measure(
    spec: JobSpec,
    sizes: Annotated[
        list[Any] | None,
        option("N,N,...", "Units per device. [default: load, load/2, ...]", sizes_of),
    ] = None,
    until: Annotated[
        float, option("P%", "Half-width of each confidence interval.", fraction, shown="2.5%")
    ] = 0.025,
    most: Annotated[int, option("N", "Maximum repeats.", integers(1, 10_000))] = 30,
    within: Annotated[
        float, option("TIME", "End after that time, e.g. 10m.", some_time, shown="60s")
    ] = 60.0,
    variant: Annotated[str | None, option("NAME", "Measure only this variant.")] = None,
    json: Json = False,
    config: ConfigName = None,
) -> None:
    workload = workloads.find(spec.workload)
    if isinstance(workload, workloads.Iterative):
        raise UsageError(f"{workload.name} is iterative: it's measured while it runs; run it")
    params = workload.infer(spec.params, {})
    load = workload.load(params)
    halves = [max(1, load >> shift) for shift in range(DEFAULT_SIZES)]
    units = sorted({size for each in sizes or [halves] for size in each})
    workload.resized(params, max(units))
    from hetsched.config import load as load_config
    from hetsched.local import Local

    settings, _ = load_config(config)
    interrupts.reraise()
    with Local(config=settings) as local:
        interrupts.reraise()
        variants = _variants_by_device(local, spec.devices, workload, params, variant)
        teams = [info.name for info in local.devices()[0] if info.members]
        plan = MeasurementSchedule(units, variants, until, most, teams)
        run = MeasurementRun(local, spec, workload, params, plan, within)
        run.run()
    if json:
        out_json(run.record())
    else:
        out_lines(run.report())


def _variants_by_device(
    local: Local,
    devices: tuple[str, ...],
    workload: BaseWorkload,
    params: msgspec.Struct,
    variant: str | None,
) -> dict[str, list[str]]:
    """Return device -> the variants to measure it with.

    Raises
    ------
    UsageError
        An unknown device or variant.
    Unavailable
        A device isn't available.
    """
    from hetsched.engine.admission.check import select_devices

    infos, absent = local.devices()
    names = select_devices(devices, infos, absent)
    chosen: dict[str, list[str]] = {}
    installed: dict[str, None] = {}
    for info in infos:
        if info.name not in names:
            continue
        variants = _installed_variants(workload, params, info)
        installed.update(dict.fromkeys(variants))
        if variant is not None:
            variants = [name for name in variants if name == variant]
        elif info.is_modelled:
            variants = variants[:1]  # its times don't depend on the variant
        if variants:
            chosen[info.name] = variants
    if variant is not None and variant not in installed:
        hint = closest_hint(variant, list(installed))
        raise UsageError(f"--variant {variant}: not installed{hint}")
    return chosen


def _installed_variants(
    workload: BaseWorkload, params: msgspec.Struct, info: DeviceInfo
) -> list[str]:
    """Return the variants that can run on a device, those last that must be tuned before."""
    from hetsched.paths import cache_dir

    cache = str(cache_dir())
    variants = [v for v in workload.variants(info.variant_kind) if v.threaded or not info.members]
    variants.sort(key=lambda v: v.tuning_left(params, info.threads, cache).is_needed)
    return [variant.name for variant in variants]


# ---- what to measure next: records in, records out


@dataclass(frozen=True)
class MeasuredSize:
    """The evidence of one device at one size; `knots`: curve -> evidence, "total" first."""

    device: str
    variant: str
    units: int
    knots: Mapping[str, Knot]

    @property
    def half_width(self) -> float:
        """Half-width of the widest confidence interval, relative to its median."""
        return max((knot.half_width for knot in self.knots.values()), default=math.inf)


@dataclass(eq=False)
class MeasurementCase:
    """One job to repeat, and its times: `units` on each device, each with a variant.

    All repeats count; drift during the measurement counts as noise.
    """

    units: int
    variants: Mapping[str, str]
    """Device -> variant."""
    repeats: int = 0
    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """(device, curve) -> of each repeat."""

    @property
    def load(self) -> int:
        """Units of the whole job."""
        return self.units * len(self.variants)

    @property
    def half_width(self) -> float:
        """Of the widest confidence interval."""
        return max(size.half_width for size in self.sizes())

    def add(self, device: DeviceReport) -> None:
        """Add a device's times; of phases only those of a share in one chunk have its size."""
        seconds = {"total": device.seconds}
        if device.chunks == (self.units,) and (device.copy_in_seconds or device.copy_out_seconds):
            seconds["compute"] = device.compute_seconds
            seconds["h2d"] = device.copy_in_seconds
            seconds["d2h"] = device.copy_out_seconds
        for curve, value in seconds.items():
            if value > 0:
                self.seconds.setdefault((device.device, curve), []).append(value)

    def sizes(self) -> list[MeasuredSize]:
        knots: dict[str, dict[str, Knot]] = {device: {} for device in self.variants}
        for (device, curve), repeats in self.seconds.items():
            knots[device][curve] = knot_of(float(self.units), repeats)
        return [
            MeasuredSize(device, self.variants[device], self.units, by_curve)
            for device, by_curve in knots.items()
        ]

    def __str__(self) -> str:
        """Return "8 units: pyfftw on core0, core1, emu0"; many cores become one word."""
        groups: dict[str, list[str]] = {}
        for device, variant in self.variants.items():
            groups.setdefault(variant, []).append(device)
        parts = []
        for variant, devices in groups.items():
            labels = [label for label, _ in grouped_rows(devices, str, MAX_GROUP_ROWS)]
            parts.append(f"{variant} on {', '.join(labels)}")
        return f"{counted(self.units, 'unit')}: {'; '.join(parts)}"


class MeasurementSchedule:
    """Which case is next: sizes alternate until each is accurate or has had its repeats.

    Parameters
    ----------
    sizes : sequence of int, units per device
    variants : mapping
        Device -> the variants to measure. A device with fewer variants than others repeats its
        last one, to keep the machine under its usual load.
    until : float
        Target half-width of the confidence interval, relative to the median.
    max_repeats : int
        Of each case.
    separate : collection of str
        Devices measured in separate jobs: a team uses the cores of others.
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
        self._turn = 0

    def ask(self) -> MeasurementCase | None:
        """Return the case to run next; None when all are done."""
        for _ in self.cases:
            case = self.cases[self._turn % len(self.cases)]
            self._turn += 1
            if not self.is_done(case):
                return case
        return None

    def drop(self, case: MeasurementCase) -> None:
        """Drop a case that can't run."""
        self._turn = self.cases.index(case)
        self.cases.remove(case)

    def is_done(self, case: MeasurementCase) -> bool:
        has_min_repeats = case.repeats >= min(MIN_REPEATS, self.max_repeats)
        is_narrow = has_min_repeats and case.half_width <= self.until
        return is_narrow or case.repeats >= self.max_repeats

    def measured(self) -> list[MeasuredSize]:
        """Return the evidence so far by device, variant and size, repeated variants once."""
        sizes = {
            (size.device, size.variant, size.units): size
            for case in reversed(self.cases)
            for size in case.sizes()
        }
        return [sizes[key] for key in sorted(sizes)]


# ---- running it


class MeasurementView(LiveTable):
    """A line for each finished case: "8 units: pyfftw on core0: within 1.2 % after 5 repeats".

    On a terminal, below it, how many are finished.
    """

    def __init__(self, plan: MeasurementSchedule) -> None:
        super().__init__()
        self._plan = plan
        self._printed = ""

    def show(self, state: JobState) -> None:
        if isinstance(state, Running) and state.text not in ("", self._printed):
            self._printed = state.text
            note(state.text)

    def on_result(self, case: MeasurementCase) -> None:
        if self._plan.is_done(case):
            repeats = counted(case.repeats, "repeat")
            note(f"{case}: within {percent(case.half_width)} after {repeats}")
        if has_bars():
            from rich.progress_bar import ProgressBar
            from rich.text import Text

            cases, most = self._plan.cases, self._plan.max_repeats
            done = sum(most if self._plan.is_done(each) else each.repeats for each in cases)
            finished = sum(map(self._plan.is_done, cases))
            bar = ProgressBar(total=most * len(cases), completed=done, width=BAR_WIDTH)
            table = grid(2)
            table.add_row(bar, Text(f"{finished} of {counted(len(cases), 'measurement')}"))
            self.draw(table)


class MeasurementRun:
    """Runs the jobs that a `MeasurementSchedule` asks for, for so many seconds.

    The last job is stopped when they are over, and doesn't count.
    """

    def __init__(
        self,
        local: Local,
        spec: JobSpec,
        workload: BaseWorkload,
        params: msgspec.Struct,
        plan: MeasurementSchedule,
        seconds: float,
    ) -> None:
        self._local = local
        self._spec = spec
        self._workload = workload
        self._params = params
        self._plan = plan
        self._view = MeasurementView(plan)
        self._ends_at = time.monotonic() + seconds
        self._jobs = 0
        self._late = 0  # phases of emulated devices that took longer than modelled

    def run(self) -> None:
        """Run jobs until all cases are done, or the time is up.

        Raises
        ------
        Cancelled
            On Ctrl-C.
        HetschedError
            The error of a job that failed.
        """
        try:
            while time.monotonic() < self._ends_at and (case := self._plan.ask()) is not None:
                self._run_case(case)
        except KeyboardInterrupt:
            jobs = counted(self._jobs, "job")
            raise Cancelled(f"interrupted; the measurements of {jobs} are kept") from None
        finally:
            self._view.close()

    def _run_case(self, case: MeasurementCase) -> None:
        params = msgspec.to_builtins(self._workload.resized(self._params, case.load))
        devices, measure = tuple(case.variants), dict(case.variants)
        spec = msgspec.structs.replace(self._spec, params=params, devices=devices, measure=measure)
        job = self._local.run(spec)
        try:
            state = watch_until(job, self._view, self._ends_at)
            if not isinstance(state, Ended):
                job.cancel()
                state = watch_until(job, self._view)
        except KeyboardInterrupt:
            self._stop(job)
            raise
        error = error_of(state)
        if isinstance(error, Cancelled):
            return
        if isinstance(error, Unavailable) and len(self._plan.cases) > 1:
            self._plan.drop(case)
            note(f"skipped: {error}")
            return
        if error is not None:
            raise error
        assert job.report is not None
        self._jobs += 1
        case.repeats += 1
        for device in job.report.devices:
            self._late += device.late
            case.add(device)
        self._view.on_result(case)

    def _stop(self, job: Job) -> None:
        """Stop after the current chunks; a second Ctrl-C stops at once."""
        interrupts.seen()
        note("stopping after the current chunks; Ctrl-C again stops at once")
        try:
            job.cancel()
            watch_until(job, self._view)
        except KeyboardInterrupt:
            self._local.abandon()

    @property
    def _is_over(self) -> bool:
        """Whether the time is up: what isn't done would take longer."""
        return not all(map(self._plan.is_done, self._plan.cases))

    def record(self) -> dict[str, Any]:
        """Return the outcome as JSON; an unknown half-width `within` is null."""
        sizes, until = self._plan.measured(), self._plan.until
        return {
            "schema": "hetsched.models.measure/1",
            "workload": self._spec.workload,
            "params": msgspec.to_builtins(self._params),
            "until": until,
            "narrow": all(size.half_width <= until for size in sizes),
            "time_is_up": self._is_over,
            "jobs": self._jobs,
            "late": self._late,
            "measured": [
                {
                    "device": size.device,
                    "variant": size.variant,
                    "units": size.units,
                    "within": size.half_width,
                    "curves": {curve: knot_record(knot) for curve, knot in size.knots.items()},
                }
                for size in sizes
            ],
        }

    def report(self) -> list[str]:
        """Return the closing table, warnings, and what to do next."""
        sizes, until = self._plan.measured(), self._plan.until
        rows = [
            (
                size.device,
                size.variant,
                str(size.units),
                f"{total.seconds:.4g}",
                number(size.units / total.seconds),
                percent(size.half_width),
                str(total.count),
            )
            for size in sizes
            if (total := size.knots.get("total"))
        ]
        header = ("device", "variant", "units", "seconds", "units/s", "within", "times")
        text = columns(header, rows, left_columns=2)
        wide = sum(size.half_width > until for size in sizes)
        if wide and self._is_over:
            text.append(
                f"note: the time is up; {len(sizes) - wide} of {len(sizes)} are within"
                f" {percent(until)}, and all times are kept; --within 10m goes on for longer"
            )
        elif wide:
            text.append(
                f"note: {wide} of {len(sizes)} aren't within {percent(until)} after"
                f" {counted(self._plan.max_repeats, 'repeat')}; use a quieter machine or --most N"
            )
        if self._late:
            phases = counted(self._late, "phase")
            text.append(f"late: {phases} took longer than modelled; the times aren't valid")
        return [*text, f"next: hetsched models show {self._spec.workload} prints every curve"]
