"""`hetsched models measure WORKLOAD`: repeat chosen sizes until their times are accurate.

A measuring job gives every device the same number of units in one chunk: its copy in, kernel and
copy out don't overlap, so each phase is measured at exactly that size. All devices run at once, as
in other jobs: cores that share memory are slower then, and planning needs that speed. Sizes
alternate, so that a disturbance of some seconds doesn't affect all repeats of one size. A size is
repeated until its confidence interval is narrow (Khaleghzadeh, Reddy & Lastovetsky, HPOPTA, TPDS
2018: 2.5 %), up to a limit.
"""

from __future__ import annotations

import itertools
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
from hetsched.job import DeviceReport, Ended, JobReport, JobSpec, JobState, Running
from hetsched.models import Knot
from hetsched.models.confidence import knot_of
from hetsched.text import MAX_GROUP_ROWS, clean, columns, grouped_rows, number
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
        out_json(_record(spec.workload, params, plan, run))
    else:
        out_lines(_report(spec.workload, plan, run))


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
    whole_seconds: float = 0.0
    """Of the last job, with all that isn't measured."""
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

    def add(self, report: DeviceReport) -> None:
        """Add a device's times; of phases only those of a share in one chunk have its size."""
        seconds = {"total": report.seconds}
        if report.chunks == (self.units,) and (report.copy_in_seconds or report.copy_out_seconds):
            seconds["compute"] = report.compute_seconds
            seconds["h2d"] = report.copy_in_seconds
            seconds["d2h"] = report.copy_out_seconds
        for curve, value in seconds.items():
            if value > 0:
                self.seconds.setdefault((report.device, curve), []).append(value)

    def sizes(self) -> list[MeasuredSize]:
        knots: dict[str, dict[str, Knot]] = {device: {} for device in self.variants}
        for (device, curve), repeats in self.seconds.items():
            knots[device][curve] = knot_of(float(self.units), repeats)
        return [
            MeasuredSize(device, self.variants[device], self.units, by_curve)
            for device, by_curve in knots.items()
        ]


class MeasurementSchedule:
    """The schedule: `ask` returns the next case, `tell` records its results.

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
        if not sizes or min(sizes) < 1:
            raise UsageError(f"sizes {list(sizes)}: give at least one, each at least 1 unit")
        if not variants or not all(variants.values()):
            raise UsageError("nothing to measure: no device has a variant of this workload")
        if not 0 < until < math.inf or max_repeats < 1:
            raise UsageError(f"until {until} in at most {max_repeats} repeats: must be positive")
        self.until = until
        self.max_repeats = max_repeats
        groups = [
            {device: names for device, names in variants.items() if device not in separate},
            *({device: variants[device]} for device in variants if device in separate),
        ]
        self.cases = [case for group in groups for case in _cases(group, sizes)]
        self._turns = itertools.cycle(range(len(self.cases)))

    def ask(self, seconds_left: float = math.inf) -> MeasurementCase | None:
        """Return the case to run next; None when all are done, or none fits in the time left."""
        for _ in self.cases:
            case = self.cases[next(self._turns)]
            if not self.is_done(case) and self._expected(case) < seconds_left:
                return case
        return None

    def tell(self, case: MeasurementCase, report: JobReport, whole_seconds: float = 0.0) -> None:
        """Add the results of a job of `case`, which took `whole_seconds` with everything."""
        case.repeats += 1
        case.whole_seconds = whole_seconds
        for device in report.devices:
            case.add(device)

    def drop(self, case: MeasurementCase) -> None:
        """Drop a case that can't run."""
        self.cases.remove(case)
        self._turns = itertools.cycle(range(len(self.cases)))

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

    def _expected(self, case: MeasurementCase) -> float:
        """Return the whole seconds of the next job: as the last, or in proportion to another's."""
        known = [case] if case.repeats else [each for each in self.cases if each.repeats][-1:]
        return sum(each.whole_seconds * case.load / each.load for each in known)


def _cases(variants: Mapping[str, Sequence[str]], sizes: Sequence[int]) -> list[MeasurementCase]:
    """Return every size with the first variant of each device, then with the second, and so on."""
    rounds = max(map(len, variants.values()), default=0)
    return [
        MeasurementCase(
            units,
            {device: names[min(number, len(names) - 1)] for device, names in variants.items()},
        )
        for number in range(rounds)
        for units in dict.fromkeys(sizes)
    ]


# ---- running it


class MeasurementRun:
    """Runs the jobs that a `MeasurementSchedule` asks for, for so many seconds.

    The last job is stopped when they are over, and doesn't count.

    Attributes
    ----------
    jobs : int
        Jobs that have succeeded.
    late : int
        Phases of emulated devices that took longer than modelled.
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
        self._view = MeasurementBars(plan) if has_bars() else MeasurementLines(plan)
        self._ends_at = time.monotonic() + seconds
        self.jobs = 0
        self.late = 0

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
            while (case := self._plan.ask(self._ends_at - time.monotonic())) is not None:
                self._run_case(case)
        except KeyboardInterrupt:
            jobs = counted(self.jobs, "job")
            raise Cancelled(f"interrupted; the measurements of {jobs} are kept") from None
        finally:
            self._view.close()

    @property
    def is_over(self) -> bool:
        """Whether the time is up: what isn't done would take longer."""
        return not all(map(self._plan.is_done, self._plan.cases))

    def _run_case(self, case: MeasurementCase) -> None:
        start = time.monotonic()
        job = self._local.run(
            msgspec.structs.replace(
                self._spec,
                params=msgspec.to_builtins(self._workload.resized(self._params, case.load)),
                devices=tuple(case.variants),
                measure=dict(case.variants),
            )
        )
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
        if isinstance(error, Unavailable):
            self._plan.drop(case)
            note(f"skipped: {error}")
            if self._plan.cases:
                return
        if error is not None:
            raise error
        report = job.report
        assert report is not None
        self.jobs += 1
        self.late += sum(device.late for device in report.devices)
        self._plan.tell(case, report, time.monotonic() - start)
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


class MeasurementLines:
    """One line per finished case: "8 units: pyfftw on core0: within 1.2 % after 5 repeats"."""

    def __init__(self, plan: MeasurementSchedule) -> None:
        self._plan = plan
        self._printed: set[str] = set()

    def show(self, state: JobState) -> None:
        if isinstance(state, Running) and state.text and state.text not in self._printed:
            self._printed.add(state.text)
            note(state.text)

    def on_result(self, case: MeasurementCase) -> None:
        if self._plan.is_done(case):
            repeats = counted(case.repeats, "repeat")
            note(f"{_title(case)}: within {percent(case.half_width)} after {repeats}")

    def close(self) -> None:
        pass


class MeasurementBars(LiveTable):
    """A row per case: repeats of the maximum, and the width of its confidence interval."""

    def __init__(self, plan: MeasurementSchedule) -> None:
        super().__init__()
        self._plan = plan
        self._text = ""

    def show(self, state: JobState) -> None:
        text = clean(state.text) if isinstance(state, Running) else ""
        if text != self._text:
            self._text = text
            self._redraw()

    def on_result(self, case: MeasurementCase) -> None:
        self._redraw()

    def _redraw(self) -> None:
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        table = grid(4)
        most = self._plan.max_repeats
        for case in self._plan.cases:
            is_done = self._plan.is_done(case)
            total = max(1, case.repeats if is_done else most)
            bar = ProgressBar(total=total, completed=case.repeats, width=BAR_WIDTH)
            state = "done" if is_done else f"{case.repeats}/{most}"
            width = percent(case.half_width)
            table.add_row(Text(clean(_title(case))), bar, Text(width), Text(state))
        if self._text:
            table.add_row(Text(self._text))
        self.draw(table)


def _title(case: MeasurementCase) -> str:
    """Describe a case: "8 units: pyfftw on core0, core1, emu0"; many cores become one word."""
    groups: dict[str, list[str]] = {}
    for device, variant in case.variants.items():
        groups.setdefault(variant, []).append(device)
    parts = []
    for variant, devices in groups.items():
        labels = [label for label, _ in grouped_rows(devices, str, MAX_GROUP_ROWS)]
        parts.append(f"{variant} on {', '.join(labels)}")
    return f"{counted(case.units, 'unit')}: {'; '.join(parts)}"


# ---- the outcome


def _record(
    name: str, params: msgspec.Struct, plan: MeasurementSchedule, run: MeasurementRun
) -> dict[str, Any]:
    """Return the outcome as JSON; an unknown half-width `within` is null."""
    sizes = plan.measured()
    return {
        "schema": "hetsched.models.measure/1",
        "workload": name,
        "params": msgspec.to_builtins(params),
        "until": plan.until,
        "narrow": all(size.half_width <= plan.until for size in sizes),
        "time_is_up": run.is_over,
        "jobs": run.jobs,
        "late": run.late,
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


def _report(name: str, plan: MeasurementSchedule, run: MeasurementRun) -> list[str]:
    """Return the closing table, warnings, and what to do next."""
    sizes = plan.measured()
    rows = [
        (
            size.device,
            size.variant,
            str(size.units),
            f"{size.knots['total'].seconds:.4g}",
            number(size.units / size.knots["total"].seconds),
            percent(size.half_width),
            str(size.knots["total"].count),
        )
        for size in sizes
        if "total" in size.knots
    ]
    header = ("device", "variant", "units", "seconds", "units/s", "within", "times")
    text = columns(header, rows, left_columns=2)
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
