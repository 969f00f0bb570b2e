"""`hetsched models measure WORKLOAD`: run sizes again and again until they are well known."""

from __future__ import annotations

import concurrent.futures
import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from hetsched import workload as workloads
from hetsched.cli import workload_flags
from hetsched.cli.app import nearest
from hetsched.cli.commands.models.labels import percent
from hetsched.cli.commands.models.progress import View, new_view
from hetsched.cli.interrupts import check
from hetsched.cli.output.progress import POLL_SECONDS, error_of
from hetsched.cli.output.terminal import clean, columns, note, number, out, out_json
from hetsched.cli.request_flags import ConfigName, Json, MemoryLimit, Request, Seed, gather
from hetsched.config import load
from hetsched.errors import Cancelled, Unavailable, UsageError
from hetsched.job import JobSpec, JobState, ended
from hetsched.units import counted

SCHEMA = "hetsched.models.measure/1"
HALVES = 6
"""Sizes that are measured when none are named: the load, its half, and so on."""


def group() -> Any:
    return workload_flags.group(
        "measure", measure, "Measure a workload's speed at sizes of your choice.", _common
    )


def _common(
    devices: Annotated[
        str | None,
        typer.Option(
            "--devices", "--device", metavar="A,B", help="Names and groups: cpu, cpu0, gpu, gpu0."
        ),
    ] = None,
    memory_limit: MemoryLimit = None,
    seed: Seed = 0,
) -> Request:
    return gather(devices=devices, memory_limit=memory_limit, seed=seed)


def measure(
    name: str,
    given: Mapping[str, Any],
    request: Request,
    sizes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N,N,...", help="Units on each device; none: the load, its half, and so on."
        ),
    ] = None,
    until: Annotated[
        str, typer.Option(metavar="P%", help="Half-width of each confidence interval.")
    ] = "2.5%",
    most: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="Repeats of a size at most.")
    ] = 30,
    variant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this one; none: all that there are.")
    ] = None,
    json: Json = False,
    config: ConfigName = None,
) -> None:
    """Measure the workload `name`; Ctrl-C keeps what was measured so far."""
    narrow = _share(until)
    workload = workloads.find(name)
    params = workload.infer(given, {})
    units = _sizes(sizes) if sizes else _halves(workload.load(params))
    workload.resized(params, max(units))
    settings, _ = load(config)
    from hetsched.engine.measurement.schedule import MeasurementSchedule
    from hetsched.local import Local

    check()
    with Local(config=settings) as local:
        check()
        devices = _devices(local, request, workload, variant)
        apart = [info.name for info in local.devices()[0] if info.members]
        plan = MeasurementSchedule(units, devices, narrow, most, apart)
        session = _Session(local, name, workload, params, request, plan)
        session.run()
    if json:
        out_json(session.record())
        return
    for line in session.lines():
        out(clean(line))


class _Session:
    """One measurement: drives jobs until `MeasurementSchedule` has enough."""

    def __init__(
        self, local: Any, name: str, workload: Any, params: Any, request: Request, plan: Any
    ) -> None:
        self._local = local
        self._name = name
        self._workload = workload
        self._params = params
        self._request = request
        self._plan = plan
        self._jobs = 0
        self._late = 0

    def run(self) -> None:
        """Raises the error of a job that failed; Cancelled on Ctrl-C."""
        view = new_view(self._plan)
        try:
            while (case := self._plan.ask()) is not None:
                self._one(case, view)
        except KeyboardInterrupt:
            taught = counted(self._jobs, "job")
            raise Cancelled(f"interrupted; what {taught} taught is kept") from None
        finally:
            view.close()

    def _one(self, case: Any, view: View) -> None:
        job = self._local.run(self._spec(case))
        try:
            state = _ended(job, case, view)
        except KeyboardInterrupt:
            self._stop(job, case, view)
            raise
        error = error_of(state)
        if isinstance(error, Unavailable):
            self._plan.drop(case)
            note(f"left out: {error}")
            if self._plan.progress():
                return
        if error is not None:
            raise error
        self._jobs += 1
        self._late += sum(device.late for device in job.report.devices)
        self._plan.tell(case, job.report)
        view.told(case)

    def _stop(self, job: Any, case: Any, view: View) -> None:
        """At a chunk's edge; a second Ctrl-C doesn't wait for that."""
        note("stopping when this job's chunks are through; Ctrl-C again stops at once")
        try:
            job.cancel()
            _ended(job, case, view)
        except KeyboardInterrupt:
            self._local.abandon()

    def _spec(self, case: Any) -> JobSpec:
        import msgspec

        params = self._workload.resized(self._params, case.load)
        return JobSpec(
            workload=self._name,
            params=msgspec.to_builtins(params),
            devices=tuple(case.variants),
            memory_limit=self._request.memory_limit,
            seed=self._request.seed,
            measure=dict(case.variants),
        )

    def record(self) -> dict[str, Any]:
        """The object that `--json` prints; a half-width that isn't known is null."""
        import msgspec

        found = self._plan.measured()
        return {
            "schema": SCHEMA,
            "workload": self._name,
            "params": msgspec.to_builtins(self._params),
            "until": self._plan.until,
            "narrow": all(one.half_width <= self._plan.until for one in found),
            "jobs": self._jobs,
            "late": self._late,
            "measured": [
                {
                    "device": one.device,
                    "variant": one.variant,
                    "units": one.units,
                    "within": one.half_width,
                    "curves": {
                        name: msgspec.to_builtins(knot) for name, knot in one.knots.items()
                    },
                }
                for one in found
            ],
        }

    def lines(self) -> list[str]:
        """A table, and what to mistrust."""
        found = self._plan.measured()
        header = ("device", "variant", "units", "seconds", "units/s", "within", "times")
        rows = [
            (
                one.device,
                one.variant,
                str(one.units),
                f"{one.knots['total'].seconds:.4g}",
                number(one.units / one.knots["total"].seconds),
                percent(one.half_width),
                str(one.knots["total"].count),
            )
            for one in found
            if "total" in one.knots
        ]
        lines = columns(header, rows, left=2)
        wide = sum(one.half_width > self._plan.until for one in found)
        if wide:
            lines.append(
                f"note: {wide} of {len(found)} are not within {percent(self._plan.until)} after"
                f" {self._plan.max_repeats} repeats; a quieter machine or --most N helps"
            )
        if self._late:
            late = counted(self._late, "phase")
            lines.append(f"late: {late} outlasted the modelled time; don't trust the figures")
        return [*lines, f"next: hetsched models show {self._name} has every curve"]


def _ended(job: Any, case: Any, view: View) -> JobState:
    """The last state of `job`, which is watched until then."""
    while True:
        state: JobState = job.progress()
        if ended(state):
            return state
        view.show(case, state)
        concurrent.futures.wait([job], timeout=POLL_SECONDS)


def _devices(
    local: Any, request: Request, workload: Any, variant: str | None
) -> dict[str, list[str]]:
    """Device -> the variants that it is measured with.

    An emulated device's times don't depend on the variant, so that it has one.
    """
    from hetsched.engine.admission.device_selection import select_devices

    infos, absent = local.devices()
    names = select_devices(request.devices, infos, absent)
    found: dict[str, list[str]] = {}
    there: dict[str, None] = {}
    for info in infos:
        if info.name not in names:
            continue
        installed = [
            one.name
            for one in workload.variants(info.variant_kind)
            if one.threaded or not info.members
        ]
        there.update(dict.fromkeys(installed))
        if info.is_modelled:
            installed = installed[:1] if variant is None else installed
        kept = [one for one in installed if variant in (None, one)]
        if kept:
            found[info.name] = kept
    if variant is not None and variant not in there:
        raise UsageError(f"--variant {variant}: there is none{nearest(variant, list(there))}")
    return found


def _sizes(given: Sequence[str]) -> list[int]:
    """The numbers in "4,8,16". Raises UsageError."""
    found = []
    for word in (part.strip() for text in given for part in text.split(",")):
        if not re.fullmatch(r"\d{1,18}", word, re.ASCII) or int(word) == 0:
            raise UsageError(f"--sizes: {word!r} isn't a number of units; example: --sizes 4,8,16")
        found.append(int(word))
    return sorted(set(found))


def _halves(units: int) -> list[int]:
    return sorted({max(1, units >> half) for half in range(HALVES)})


def _share(text: str) -> float:
    """0.025 of "2.5%" or "0.025". Raises UsageError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*", text, re.ASCII)
    share = float(match[1]) / (100 if match[2] else 1) if match else math.nan
    if not 0 < share < 1:
        raise UsageError(f"--until {text}: needs a share between 0% and 100%, as 2.5%")
    return share
