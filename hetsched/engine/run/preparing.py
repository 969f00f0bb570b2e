"""The steps before and after the timed one: prepare kernels, fill arrays, verify the result."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence

from hetsched.device import DeviceInfo
from hetsched.engine.run.attempt import Attempt
from hetsched.errors import JobFailed
from hetsched.transport.device_messages import Check, Checked, Fill, Filled, Prepared

PREPARING = "preparing kernels"
RANDOM_SAMPLES = 8
"""Random units compared with the reference, besides the edges of shares."""


async def prepare(attempt: Attempt, *, kernels_cached: bool) -> None:
    """Prepare all devices and fill the arrays; `kernels_cached`: that takes no time worth waiting.

    Then chunks follow without answers if nothing is filled.
    """
    running = attempt.running
    fills = fill_messages(attempt)
    if kernels_cached and not fills and running.iterations is None:
        attempt.step = "preparing"
        _prepare_all(attempt, answer=False)
        return
    await _prepare_and_wait(attempt, "preparing")
    running.context.planning.record_kernels(
        running.job,
        tuple(attempt.assignments.values()),
        attempt.infos,
        frozenset(attempt.failed_variants),
    )
    if not fills:
        return
    devices = _send_each(attempt, fills)
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


def _send_each(attempt: Attempt, messages: Iterable[tuple[str, Fill | Check]]) -> list[str]:
    """Send each device its message; return the devices, one per answer to come."""
    devices = []
    for device, message in messages:
        attempt.running.context.fleet.send(device, message)
        devices.append(device)
    return devices


def helpers(infos: Sequence[DeviceInfo]) -> list[str]:
    """Return the devices that fill and check: the cores, or all devices if there are no cores."""
    cores = [info.name for info in infos if info.is_core]
    return cores or [info.name for info in infos]


def fill_messages(attempt: Attempt) -> list[tuple[str, Fill]]:
    """Return what devices are to fill, unless an earlier attempt has: inputs, and the outputs.

    Outputs to be verified are poisoned because segments are reused: units that a device failed to
    compute could still hold the correct results of an earlier job.
    """
    running = attempt.running
    job, spec = running.job, running.spec
    if running.inputs_filled or not (spec.verify or job.generate):
        return []
    fills = [(array, spec.seed, False) for array in job.generate]
    if spec.verify:
        poisoned = [a for a in job.specs if a.is_output and a.name not in job.outputs]
        fills += [(array, 0, True) for array in poisoned]
    devices = helpers([attempt.infos[name] for name in attempt.assignments])
    return [
        (devices[part], Fill(attempt.id, array.name, first, count, seed, poison))
        for array, seed, poison in fills
        for part, (first, count) in enumerate(
            ranges(1 if array.is_whole else job.load, len(devices))
        )
    ]


async def verify(attempt: Attempt) -> None:
    """Check the result. Raises JobFailed."""
    devices = _send_each(attempt, check_messages(attempt))
    error: JobFailed | None = None
    for checked in await attempt.answers(Checked, devices, "verifying", "verification"):
        attempt.max_error = max(attempt.max_error, checked.max_error)
        error = error or _error(checked)
    attempt.verified = error is None
    if error is not None:
        raise error


def check_messages(attempt: Attempt) -> list[tuple[str, Check]]:
    """Return what devices are to check: every unit once, edges of shares by the reference, too."""
    running, computation = attempt.running, attempt.computation
    prepared = [attempt.infos[d] for d in attempt.assignments if d in attempt.prepared]
    devices = helpers(prepared)  # at least the device of the last chunk
    load, seed = running.job.load, running.verification_seed
    samples = sample_units(load, computation.ranges.edges() if computation else [], seed)
    return [
        (
            device,
            Check(
                attempt.id,
                first,
                count,
                tuple(unit for unit in samples if first <= unit < first + count),
                seed,
            ),
        )
        for device, (first, count) in zip(devices, ranges(load, len(devices)), strict=False)
    ]


def _error(checked: Checked) -> JobFailed | None:
    for value, name in ((checked.worst, "residual"), (checked.sample_error, "difference")):
        if not value <= 1:  # NaN counts as an error
            return JobFailed(
                f"verification failed: unit {checked.unit}: the {name} is {value:.3g} times"
                " what rounding explains; the result was not kept"
            )
    return None


def ranges(load: int, parts: int) -> list[tuple[int, int]]:
    """Divide `load` units evenly into (first, count) of at most `parts` ranges; none is empty."""
    parts = min(parts, load)
    bounds = [load * part // parts for part in range(parts + 1)]
    return [(low, high - low) for low, high in itertools.pairwise(bounds)]


def sample_units(load: int, edges: Sequence[int], seed: int) -> list[int]:
    """Return units to compare with the reference: edges of computed ranges, and random ones."""
    sampled = random.Random(seed).sample(range(load), min(RANDOM_SAMPLES, load))
    return sorted({unit for unit in [*edges, *sampled] if 0 <= unit < load})
