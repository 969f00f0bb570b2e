"""The steps before and after the timed one: prepare kernels, fill arrays, verify the result."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hetsched.device import DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.run.attempt import Attempt
from hetsched.errors import JobFailed
from hetsched.transport.device_messages import Check, Checked, Fill, Filled, Prepared

PREPARING = "preparing kernels"
RANDOM_SAMPLES = 8
"""Random units compared with the reference, besides the edges of shares."""


@dataclass(frozen=True)
class FillOrder:
    """An order to generate or poison `count` units of `array` from unit `first` on."""

    device: str
    array: str
    first: int
    count: int
    seed: int
    poison: bool


@dataclass(frozen=True)
class CheckOrder:
    """An order to check `count` units from `first` on, `samples` against the reference."""

    device: str
    first: int
    count: int
    samples: tuple[int, ...]


def helpers(infos: Sequence[DeviceInfo]) -> list[str]:
    """Return the devices that fill and check: the cores, or all devices if there are no cores."""
    cores = [info.name for info in infos if info.is_core]
    return cores or [info.name for info in infos]


def fill_orders(
    job: ResolvedJob, helpers: Sequence[str], seed: int, poisoned: Collection[str]
) -> list[FillOrder]:
    """Return orders to generate missing inputs, and to poison the outputs named in `poisoned`.

    Outputs to be verified are poisoned because segments are reused: units that a device failed to
    compute could still hold the correct results of an earlier job.
    """
    fills = [(array, seed, False) for array in job.generate]
    fills += [
        (array, 0, True) for array in job.specs if array.is_output and array.name in poisoned
    ]
    return [
        FillOrder(helpers[part], array.name, first, count, array_seed, poison)
        for array, array_seed, poison in fills
        for part, (first, count) in enumerate(
            ranges(1 if array.is_whole else job.load, len(helpers))
        )
    ]


def check_orders(
    load: int, helpers: Sequence[str], edges: Sequence[int], seed: int
) -> list[CheckOrder]:
    """Return orders to check every unit once, with the edges of computed ranges as samples."""
    samples = sample_units(load, edges, seed)
    return [
        CheckOrder(
            device, first, count, tuple(unit for unit in samples if first <= unit < first + count)
        )
        for device, (first, count) in zip(helpers, ranges(load, len(helpers)), strict=False)
    ]


def ranges(load: int, parts: int) -> list[tuple[int, int]]:
    """Divide `load` units evenly into (first, count) of at most `parts` ranges; none is empty."""
    parts = min(parts, load)
    bounds = [load * part // parts for part in range(parts + 1)]
    return [(low, high - low) for low, high in itertools.pairwise(bounds)]


def sample_units(load: int, edges: Sequence[int], seed: int) -> list[int]:
    """Return units to compare with the reference: edges of computed ranges, and random ones."""
    sampled = random.Random(seed).sample(range(load), min(RANDOM_SAMPLES, load))
    return sorted({unit for unit in [*edges, *sampled] if 0 <= unit < load})


class VerificationResult:
    """The combined Checked messages of one job.

    Attributes
    ----------
    error : JobFailed or None
        The first error larger than rounding errors.
    max_error : float
        Largest max|y - reference| / max|reference| over the sampled units.
    """

    def __init__(self) -> None:
        self.error: JobFailed | None = None
        self.max_error = 0.0

    def add(self, checked: Checked) -> None:
        self.max_error = max(self.max_error, checked.max_error)
        for value, name in ((checked.worst, "residual"), (checked.sample_error, "difference")):
            if not value <= 1 and self.error is None:  # NaN counts as an error
                self.error = JobFailed(
                    f"verification failed: unit {checked.unit}: the {name} is {value:.3g} times"
                    " what rounding explains; the result was not kept"
                )


async def prepare(attempt: Attempt, *, kernels_cached: bool) -> None:
    """Prepare all devices and fill the arrays; `kernels_cached`: that takes no time worth waiting.

    Then chunks follow without answers if nothing is filled.
    """
    running = attempt.running
    orders = _fills(attempt)
    if kernels_cached and not orders and running.iterations is None:
        attempt.step = "preparing"
        running.report_progress(attempt)
        _prepare_all(attempt, answer=False)
        return
    await _prepare_and_wait(attempt, "preparing")
    running.context.planning.record_kernels(
        running.job,
        tuple(attempt.assignments.values()),
        attempt.infos,
        frozenset(attempt.failed_variants),
        running.side is not None,
    )
    if not orders:
        return
    for order in orders:
        _fill(attempt, order)
    devices = [order.device for order in orders]
    await attempt.answers(Filled, devices, "filling", "generating arrays")
    running.inputs_filled = True
    if any(array.role == "resident" for array in running.job.generate):
        # resident arrays are copied to a device when it is prepared
        await _prepare_and_wait(attempt, "reloading")


async def _prepare_and_wait(attempt: Attempt, step: str) -> None:
    _prepare_all(attempt, answer=True)
    await attempt.answers(Prepared, attempt.assignments, step, PREPARING)
    attempt.prepared.update(attempt.live)


def _prepare_all(attempt: Attempt, *, answer: bool) -> None:
    """Prepare the devices, those with a link first.

    Once cores compute, the engine's thread may have to wait for one of them.
    """
    for device in sorted(attempt.assignments, key=lambda name: not attempt.infos[name].link):
        attempt.prepare_device(device, answer=answer)


def _fills(attempt: Attempt) -> list[FillOrder]:
    """Return what to fill: nothing if an earlier attempt has."""
    running = attempt.running
    job, spec = running.job, running.spec
    if running.inputs_filled or not (spec.verify or job.generate):
        return []
    poisoned = [
        array.name
        for array in job.specs
        if spec.verify and array.is_output and array.name not in job.outputs
    ]
    devices = helpers([attempt.infos[name] for name in attempt.assignments])
    return fill_orders(job, devices, spec.seed, poisoned)


def _fill(attempt: Attempt, order: FillOrder) -> None:
    message = Fill(attempt.id, order.array, order.first, order.count, order.seed, order.poison)
    attempt.running.context.fleet.send(order.device, message)


async def verify(attempt: Attempt) -> None:
    """Check the result. Raises JobFailed."""
    running = attempt.running
    prepared = [attempt.infos[d] for d in attempt.assignments if d in attempt.prepared]
    devices = helpers(prepared)  # at least the device of the last chunk
    edges = attempt.computation.ranges.edges() if attempt.computation is not None else []
    seed = running.verification_seed
    orders = check_orders(running.job.load, devices, edges, seed)
    for order in orders:
        _check(attempt, order, seed)
    devices = [order.device for order in orders]
    result = VerificationResult()
    for checked in await attempt.answers(Checked, devices, "verifying", "verification"):
        result.add(checked)
    attempt.verified, attempt.max_error = result.error is None, result.max_error
    if result.error is not None:
        raise result.error


def _check(attempt: Attempt, order: CheckOrder, seed: int) -> None:
    message = Check(attempt.id, order.first, order.count, order.samples, seed)
    attempt.running.context.fleet.send(order.device, message)
