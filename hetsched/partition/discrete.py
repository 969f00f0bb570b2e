"""The split with the shortest makespan, for times of any shape.

Minimise max_i t_i(d_i) subject to sum d_i = n, for times that may fall with size because of caches
and alignment: the problem of Khaleghzadeh, Reddy & Lastovetsky 2018 (HPOPTA). A time T is feasible
if n is a sum of one size from each set {x : t_i(x) <= T}; the makespan is the shortest feasible
time in the models' tables. Sets of sums are bit sets, cut to the sums that can still reach n.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hetsched.errors import HetschedError, UsageError
from hetsched.models import SpeedFunction
from hetsched.models.curves import Floats
from hetsched.partition.distribution import (
    Distribution,
    Limits,
    Models,
    check_request,
    infinite_time_error,
    invalid_time_error,
    predict,
    speed_functions,
    time_of,
)

MAX_TIMES = 1 << 26
"""Times in all tables together: 512 MiB."""
Bits = NDArray[np.bool_]
"""Entry x: whether x is in the set."""


def optimal(models: Models, load: int, limits: Limits | None = None) -> Distribution:
    """Split `load` for the shortest makespan, for times of any shape.

    Parameters
    ----------
    models : sequence of SpeedFunction
        Evaluated for all sizes at once, or one by one if they accept only numbers. An infinite
        time means that the size is too large for the device.
    load : int, units
    limits : sequence of int or None, units, optional
        The maximum for each device.

    Returns
    -------
    Distribution
        Exactly optimal. Memory O(p n). Each feasibility test costs at most O(p n) operations on
        n bits, much less where times mostly rise; O(log(p n)) tests, usually one or two.

    Raises
    ------
    UsageError
        A malformed argument; a model is unmeasured, fails, or has a time that isn't positive;
        more than `MAX_TIMES` times to compare.
    DataError
        The limits leave no room for the load, or every split has an infinite time.
    """
    load, max_shares = check_request(models, load, limits)
    if load == 0:
        return predict(models, [0] * len(models))
    size = sum(max_shares) + len(max_shares)
    if size > MAX_TIMES:
        raise UsageError(
            f"optimal: {load} units on {len(models)} devices are {size} times to compare, more"
            f" than {MAX_TIMES}; use geometric, or larger units"
        )
    curves = speed_functions(models)
    tables = [_table(i, curve, max_shares[i]) for i, curve in enumerate(curves)]
    return predict(models, _search(tables, load))


def _table(index: int, model: SpeedFunction, max_share: int) -> Floats:
    """Return (max_share + 1,) float64, the device's time for each size; 0 for size 0."""
    sizes = np.arange(1, max_share + 1)
    try:
        times = np.asarray(model.time(sizes), dtype=np.float64)
    except HetschedError:
        raise
    except Exception:
        # A scalar-only model may raise anything for an array; its real errors recur below.
        times = np.empty(0)
    if times.shape != sizes.shape:
        times = np.array([time_of(index, model, size) for size in sizes.tolist()])
    invalid = np.flatnonzero(~(times > 0))
    if len(invalid):
        raise invalid_time_error(index, int(sizes[invalid[0]]), float(times[invalid[0]]))
    return np.concatenate(([0.0], times))


def _search(tables: Sequence[Floats], load: int) -> list[int]:
    bound = _lower_bound(tables, load)
    if bound == np.inf:
        raise infinite_time_error(load)
    shares = _split_within(tables, load, bound)
    if shares is not None:
        return shares
    times = np.unique(np.concatenate([table[table > bound] for table in tables]))
    times = times[np.isfinite(times)]
    # Feasible times are usually near the bound, where tests are cheapest.
    low, high, step = -1, 0, 1
    while (
        high < len(times) and (shares := _split_within(tables, load, float(times[high]))) is None
    ):
        low, high, step = high, high + step, 2 * step
    if shares is None:
        high = len(times)
    while high - low > 1:
        middle = (low + high) // 2
        faster = _split_within(tables, load, float(times[middle]))
        if faster is None:
            low = middle
        else:
            high, shares = middle, faster
    if shares is None:
        raise infinite_time_error(load)
    return shares


def _lower_bound(tables: Sequence[Floats], load: int) -> float:
    """Return the optimum if no size took longer than any larger one.

    Size x then costs the minimum time from x on; the optimum is the n-th smallest of all costs.
    """
    minima = [np.minimum.accumulate(table[:0:-1]) for table in tables]
    return float(np.partition(np.concatenate(minima), load - 1)[load - 1])


def _split_within(tables: Sequence[Floats], load: int, seconds: float) -> list[int] | None:
    """Return shares that sum to `load` and take at most `seconds`; None if impossible."""
    feasible = [table <= seconds for table in tables]
    tops = [int(np.flatnonzero(mask)[-1]) for mask in feasible]
    slack = sum(tops) - load
    if slack < 0:
        return None
    if slack >= load:
        return _summing_to(load, [mask[: load + 1] for mask in feasible])
    # The slack below the largest sizes is smaller than the load, so distribute the slack.
    reductions = [mask[top::-1][: slack + 1] for mask, top in zip(feasible, tops, strict=True)]
    chosen = _summing_to(slack, reductions)
    return None if chosen is None else [a - b for a, b in zip(tops, chosen, strict=True)]


def _summing_to(total: int, sets: Sequence[Bits]) -> list[int] | None:
    """Choose a number from each set, with the sum `total`; None if impossible."""
    sums = [np.array([True])]
    for numbers in sets:
        sums.append(_sumset(sums[-1], numbers, total + 1))
    if len(sums[-1]) <= total or not sums[-1][total]:
        return None
    chosen: list[int] = []
    for numbers, before in zip(reversed(sets), reversed(sums[:-1]), strict=True):
        first, last = max(0, total - len(before) + 1), min(len(numbers) - 1, total)
        rest = before[total - last : total - first + 1][::-1]
        number = first + int(np.flatnonzero(numbers[first : last + 1] & rest)[0])
        chosen.append(number)
        total -= number
    return chosen[::-1]


# ---- bit sets


def _sumset(first: Bits, second: Bits, width: int) -> Bits:
    """Return the set of all sums a + b < `width` of a in `first` and b in `second`.

    A run of numbers is added by doubling shifts of a Python integer: O(r w / 64 log(w)) for r runs
    in the simpler set.
    """
    runs, addend = _runs(first), second
    second_runs = _runs(second)
    if len(second_runs) < len(runs):
        runs, addend = second_runs, first
    number = int.from_bytes(np.packbits(addend, bitorder="little").tobytes(), "little")
    unions: dict[int, int] = {}
    total = 0
    for start, end in runs.tolist():
        length = end - start
        if length not in unions:
            unions[length] = _union_of_shifts(number, length)
        total |= unions[length] << start
    width = min(len(first) + len(second) - 1, width)
    packed = (total & (1 << width) - 1).to_bytes((width + 7) // 8, "little")
    bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=width, bitorder="little")
    return bits.view(np.bool_)


def _runs(bits: Bits) -> NDArray[np.int64]:
    """Return (runs, 2) int64: start and end (exclusive) of each run of consecutive numbers."""
    edges = np.diff(bits.view(np.int8), prepend=np.int8(0), append=np.int8(0))
    return np.flatnonzero(edges).reshape(-1, 2)


def _union_of_shifts(number: int, length: int) -> int:
    shifts = 1
    while 2 * shifts <= length:
        number |= number << shifts
        shifts *= 2
    return number | number << (length - shifts)
