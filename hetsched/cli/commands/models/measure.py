"""`hetsched models measure WORKLOAD`: repeat chosen sizes until their times are accurate."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from hetsched import workload as workloads
from hetsched.cli import interrupts, workload_flags
from hetsched.cli.integer_parser import integers
from hetsched.cli.output.terminal import clean, out, out_json
from hetsched.cli.request_flags import (
    ConfigName,
    JobOptions,
    Json,
    MemoryLimit,
    ParamValue,
    Seed,
    job_options,
)
from hetsched.config import load
from hetsched.device import DeviceInfo
from hetsched.errors import UsageError
from hetsched.paths import cache_dir
from hetsched.units import closest_hint, parse_time
from hetsched.workload import BaseWorkload

if TYPE_CHECKING:
    from typer._click import Command

    from hetsched.local import Local

DEFAULT_SIZES = 6
"""Number of sizes measured without --sizes: the load, half of it, and so on."""
MAX_REPEATS = 10_000


def group() -> Command:
    return workload_flags.group(
        "measure", measure, "Measure a workload's speed at chosen sizes.", _measure_options
    )


def _measure_options(
    devices: Annotated[
        str | None,
        typer.Option(
            "--devices", "--device", metavar="A,B", help="Devices or groups: cpu, cpu0, gpu, gpu0."
        ),
    ] = None,
    memory_limit: MemoryLimit = None,
    seed: Seed = 0,
) -> JobOptions:
    return job_options(devices=devices, memory_limit=memory_limit, seed=seed)


def measure(  # noqa: PLR0913, PLR0917 - one for each flag
    name: str,
    params: Mapping[str, ParamValue],
    options: JobOptions,
    sizes: Annotated[
        list[str] | None,
        typer.Option(metavar="N,N,...", help="Units per device. [default: load, load/2, ...]"),
    ] = None,
    until: Annotated[
        str, typer.Option(metavar="P%", help="Half-width of each confidence interval.")
    ] = "2.5%",
    most: Annotated[
        int,
        typer.Option(metavar="N", parser=integers(1, MAX_REPEATS), help="Maximum repeats."),
    ] = 30,
    within: Annotated[
        str, typer.Option(metavar="TIME", help="End after that time, e.g. 10m.")
    ] = "60s",
    variant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Measure only this variant.")
    ] = None,
    json: Json = False,
    config: ConfigName = None,
) -> None:
    """Measure the workload `name`; Ctrl-C keeps what was measured so far."""
    fraction, seconds = _fraction(until), _seconds(within)
    workload = workloads.find(name)
    full_params = workload.infer(params, {})
    units = _parse_sizes(sizes) if sizes else _halves(workload.load(full_params))
    workload.resized(full_params, max(units))
    settings, _ = load(config)
    from hetsched.cli.commands.models import measurement_report
    from hetsched.cli.commands.models.measurement_run import MeasurementRun
    from hetsched.cli.commands.models.measurement_schedule import MeasurementSchedule
    from hetsched.local import Local

    interrupts.reraise()
    with Local(config=settings) as local:
        interrupts.reraise()
        variants = _variants_by_device(local, options, workload, full_params, variant)
        teams = [info.name for info in local.devices()[0] if info.members]
        plan = MeasurementSchedule(units, variants, fraction, most, teams)
        run = MeasurementRun(local, name, workload, full_params, options, plan, seconds)
        run.run()
    if json:
        out_json(measurement_report.record(name, full_params, plan, run))
        return
    for line in measurement_report.lines(name, plan, run):
        out(clean(line))


def _variants_by_device(
    local: Local,
    options: JobOptions,
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
    names = select_devices(options.devices, infos, absent)
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
    variants = [v for v in workload.variants(info.variant_kind) if v.threaded or not info.members]
    cache = str(cache_dir())
    return [
        variant.name
        for variant in sorted(
            variants,
            key=lambda v: v.tuning_left(params, info.threads, cache).is_needed,
        )
    ]


def _parse_sizes(texts: Sequence[str]) -> list[int]:
    """Parse "4,8,16". Raises UsageError."""
    sizes = []
    for word in (part.strip() for text in texts for part in text.split(",")):
        if not re.fullmatch(r"\d{1,18}", word, re.ASCII) or int(word) == 0:
            raise UsageError(f"--sizes: {word!r} isn't a number of units; example: --sizes 4,8,16")
        sizes.append(int(word))
    return sorted(set(sizes))


def _halves(units: int) -> list[int]:
    return sorted({max(1, units >> shift) for shift in range(DEFAULT_SIZES)})


def _fraction(text: str) -> float:
    """Parse "2.5%" or "0.025" as 0.025. Raises UsageError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*", text, re.ASCII)
    fraction = float(match[1]) / (100 if match[2] else 1) if match else math.nan
    if not 0 < fraction < 1:
        raise UsageError(f"--until {text}: must be between 0% and 100%, e.g. 2.5%")
    return fraction


def _seconds(text: str) -> float:
    seconds = parse_time(text)
    if seconds <= 0:
        raise UsageError(f"--within {text}: must be more than 0, e.g. 10m")
    return seconds
