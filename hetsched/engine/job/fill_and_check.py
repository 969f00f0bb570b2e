"""Distribution of filling inputs and checking results over devices; results of checks. Pure."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hetsched.device import DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.errors import JobFailed
from hetsched.transport.device_messages import Checked

RANDOM_SAMPLES = 8
"""Random units compared with the reference, besides the edges of shares. Arbitrary."""


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
