"""Epochs: which devices compute iterations together, from which one on, with which rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from hetsched.transport.iterations.messages import Iterate


@dataclass(frozen=True)
class Epoch:
    """Devices that compute iterations together, in the order of their rows.

    Attributes
    ----------
    number : int
    devices : tuple of str
        Each has rows, so that the order of partial results never depends on a split that the
        engine doesn't know yet.
    slots : tuple of int
        Of each device: its index among the job's devices.
    bounds : tuple of int, rows
        Device r begins with the rows from bounds[r] up to bounds[r + 1].
    first, last : int
        Iterations; 0 is the start. `first` > `last`: only the finish stages.
    previous : tuple of int
        Slots with partial results of iteration `first` - 1, in the order of their rows.
    restores : bool
        It begins with what was saved of iteration `first` - 1.
    is_paced : bool
        Each iteration waits until the engine allows it.
    """

    number: int
    devices: tuple[str, ...]
    slots: tuple[int, ...]
    bounds: tuple[int, ...]
    first: int
    last: int
    previous: tuple[int, ...] = ()
    is_paced: bool = False
    restores: bool = False

    @property
    def rows(self) -> dict[str, int]:
        """Rows of each device at the beginning."""
        counts = (stop - first for first, stop in pairwise(self.bounds))
        return dict(zip(self.devices, counts, strict=True))

    def order(self, job: int, rank: int, index: int) -> Iterate:
        """Return the message for device `rank`, number `index` of its process."""
        return Iterate(
            job=job,
            device=index,
            epoch=self.number,
            rank=rank,
            slots=self.slots,
            bounds=self.bounds,
            first=self.first,
            last=self.last,
            previous=self.previous,
            restores=self.restores,
            paced=self.is_paced,
        )


def bounds_of(rows: Sequence[int]) -> tuple[int, ...]:
    """Return the bounds of consecutive shares."""
    return (0, *accumulate(rows))


def shares_of(
    wanted: Mapping[str, int], devices: Sequence[str], load: int, granule: int
) -> dict[str, int]:
    """Return the rows of those of `devices` that can take part, in their order.

    Each gets at least a granule; if there are too few of them, the devices that should have the
    fewest rows get none. Shares are multiples of the granule, but for the last one. What is wanted
    is returned unchanged if it fulfils that.

    Parameters
    ----------
    wanted : mapping
        Device -> rows that it should have; scaled if these aren't all rows. None of `devices`: 0.
    """
    if _is_split(rows := {device: wanted.get(device, 0) for device in devices}, load, granule):
        return rows
    granules = -(-load // granule)
    ranked = sorted(devices, key=lambda device: -wanted.get(device, 0))[:granules]
    chosen = [device for device in devices if device in ranked]
    total = sum(wanted.get(device, 0) for device in chosen)
    weights = [wanted.get(device, 0) / total if total else 1 / len(chosen) for device in chosen]
    parts = _apportioned(granules, weights)
    bounds = [min(load, bound * granule) for bound in bounds_of(parts)]
    return {
        device: high - low for device, (low, high) in zip(chosen, pairwise(bounds), strict=True)
    }


def _is_split(rows: Mapping[str, int], load: int, granule: int) -> bool:
    """Return whether these are all rows, at least one each, cut between granules."""
    *cuts, end = bounds_of(tuple(rows.values()))
    return end == load and all(rows.values()) and not any(cut % granule for cut in cuts)


def _apportioned(granules: int, weights: Sequence[float]) -> list[int]:
    """Divide `granules` by `weights`, at least 1 each; by largest remainders."""
    exact = [weight * granules for weight in weights]
    parts = [max(1, int(share)) for share in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: parts[i] - exact[i])
    for index in by_remainder[: max(0, granules - sum(parts))]:
        parts[index] += 1
    while sum(parts) > granules:
        parts[parts.index(max(parts))] -= 1
    return parts


def first_iteration(finished: int, ended: int | None) -> tuple[int, int | None]:
    """Return the first iteration of the next epoch, and the last one if the job has ended there.

    Parameters
    ----------
    finished : int
        The last iteration that is complete on all devices; -1: the start isn't.
    ended : int or None
        The iteration after which the finish stages have begun; None: they haven't.
    """
    if ended is not None:
        return ended + 1, ended
    return finished + 1, None
