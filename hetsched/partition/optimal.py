"""The split with the least makespan, whatever the times do with size.

Minimise max_i t_i(d_i) subject to sum d_i = n, for times that may fall, as effects of caches and
of alignment make them: the problem of Khaleghzadeh, Reddy & Lastovetsky 2018 (HPOPTA). A time T is
feasible if n is a sum of one size from each set {x : t_i(x) <= T}, and the makespan is the least
time in the models' tables that is; sets of sums are bit sets, cut to what can still lead to n.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hetsched.errors import HetschedError, UsageError
from hetsched.models import SpeedFunction
from hetsched.models.curves.segments import Floats
from hetsched.partition.bit_sets import Bits, added
from hetsched.partition.distribution import Distribution, Limits, Models, checked, endless, priced
from hetsched.partition.model_queries import speed_functions, time_of, wrong_time

MOST_TIMES = 1 << 26
"""Times in all tables together: 512 MiB of them."""


def optimal(models: Models, load: int, limits: Limits | None = None) -> Distribution:
    """The split of `load` that finishes first, for any times.

    Parameters
    ----------
    models : sequence of SpeedFunction
        Asked for the times of all sizes at once, or one by one if they take only numbers. An
        infinite time is a size that the device can't do.
    load : int, units
    limits : sequence of int or None, units, optional
        The most that each device takes.

    Returns
    -------
    Distribution
        Exactly optimal. Memory O(p n). Each feasibility test costs at most O(p n) operations on
        n bits, much less where times mostly rise; O(log(p n)) tests, mostly one or two.

    Raises
    ------
    UsageError
        Malformed; a model that knows nothing, fails, or has a time that isn't positive; more than
        `MOST_TIMES` times to look at.
    DataError
        The limits leave no room for the load, or every split has an infinite time.
    """
    load, most = checked(models, load, limits)
    if load == 0:
        return priced(models, [0] * len(models))
    size = sum(most) + len(most)
    if size > MOST_TIMES:
        raise UsageError(
            f"optimal: {load} units on {len(models)} devices are {size} times to compare, more"
            f" than {MOST_TIMES}; use geometric, or larger units"
        )
    curves = speed_functions(models)
    tables = [_table(i, curve, most[i]) for i, curve in enumerate(curves)]
    return priced(models, _search(tables, load))


def _table(index: int, model: SpeedFunction, most: int) -> Floats:
    """(most + 1,) float64, the device's time for each size, 0 for none."""
    sizes = np.arange(1, most + 1)
    times = np.concatenate(([0.0], _times(index, model, sizes)))
    wrong = np.flatnonzero(~(times[1:] > 0))
    if len(wrong):
        raise wrong_time(index, int(sizes[wrong[0]]), float(times[wrong[0] + 1]))
    return times


def _times(index: int, model: SpeedFunction, sizes: NDArray[np.int64]) -> Floats:
    try:
        times = np.asarray(model.time(sizes), dtype=np.float64)
    except HetschedError:
        raise
    except Exception:
        # Whatever a model of numbers says of an array; its own troubles come again below.
        times = np.empty(0)
    if times.shape != sizes.shape:
        times = np.array([time_of(index, model, size) for size in sizes.tolist()])
    return times


def _search(tables: Sequence[Floats], load: int) -> list[int]:
    """Shares with the least makespan."""
    bound = _bound(tables, load)
    if bound == np.inf:
        raise endless(load)
    found = _split(tables, load, bound)
    if found is not None:
        return found
    times = np.unique(np.concatenate([table[table > bound] for table in tables]))
    times = times[np.isfinite(times)]
    # Feasible times are near the bound as a rule, and tests there are the cheapest.
    low, high, step = -1, 0, 1
    while high < len(times) and (found := _split(tables, load, float(times[high]))) is None:
        low, high, step = high, high + step, 2 * step
    if found is None:
        high = len(times)
    while high - low > 1:
        middle = (low + high) // 2
        closer = _split(tables, load, float(times[middle]))
        if closer is None:
            low = middle
        else:
            high, found = middle, closer
    if found is None:
        raise endless(load)
    return found


def _bound(tables: Sequence[Floats], load: int) -> float:
    """The optimum if every device could also do any smaller size within the time of a larger one.

    Then sizes up to x cost the least time of x or more, and the optimum is the n-th of all these.
    """
    least = [np.minimum.accumulate(table[:0:-1]) for table in tables]
    return float(np.partition(np.concatenate(least), load - 1)[load - 1])


def _split(tables: Sequence[Floats], load: int, seconds: float) -> list[int] | None:
    """Shares that sum to `load` and take `seconds` at most, if there are any."""
    able = [table <= seconds for table in tables]
    tops = [int(np.flatnonzero(mask)[-1]) for mask in able]
    slack = sum(tops) - load
    if slack < 0:
        return None
    if slack >= load:
        return _summing_to(load, [mask[: load + 1] for mask in able])
    # Fewer units are missing from the largest sizes than make up the load: sum up those.
    missing = [mask[top::-1][: slack + 1] for mask, top in zip(able, tops, strict=True)]
    lacks = _summing_to(slack, missing)
    return None if lacks is None else [a - b for a, b in zip(tops, lacks, strict=True)]


def _summing_to(total: int, sets: Sequence[Bits]) -> list[int] | None:
    """One number of each set, summing to `total`; bit x of a set says whether x is in it."""
    sums = [np.array([True])]
    for numbers in sets:
        sums.append(added(sums[-1], numbers, total + 1))
    if len(sums[-1]) <= total or not sums[-1][total]:
        return None
    chosen: list[int] = []
    for numbers, before in zip(reversed(sets), reversed(sums[:-1]), strict=True):
        number = _one_of(numbers, before, total)
        chosen.append(number)
        total -= number
    return chosen[::-1]


def _one_of(numbers: Bits, before: Bits, total: int) -> int:
    """A number whose difference from `total` is in `before`."""
    first, last = max(0, total - len(before) + 1), min(len(numbers) - 1, total)
    rest = before[total - last : total - first + 1][::-1]
    return first + int(np.flatnonzero(numbers[first : last + 1] & rest)[0])
