"""Equal times on functional models: Clarke 5.1, DFPA; bounds of Lastovetsky & Reddy.

A line through the origin with slope 1/T meets device i's speed function at the x_i(T) units that
it finishes in T. T is found so that the x_i(T) add up to the load. Newton's method, kept within a
bracket, needs about an eighth of the evaluations of the papers' bisection.
"""

from __future__ import annotations

from hetsched.partition.distribution import Distribution, Limits, Models, checked, priced
from hetsched.partition.reach import Reach
from hetsched.partition.rounding import round_greedy

MOST_STEPS = 400
"""Every third step halves the bracket, so this is more than a float can need."""


def geometric(models: Models, load: int, limits: Limits | None = None) -> Distribution:
    """The split of `load` that finishes first, if every model's time is nondecreasing.

    Parameters
    ----------
    models : sequence of SpeedFunction
        Evaluated together if they are ours; one by one, by bisection, if they only have `.time`.
    load : int, units
    limits : sequence of int or None, units, optional
        The most that each device takes; devices at their limit finish earlier.

    Returns
    -------
    Distribution
        Exactly optimal in whole units for nondecreasing times. O(p log(pieces)) a step, about six
        steps.

    Raises
    ------
    UsageError, DataError
        Malformed, or a model knows nothing yet; the limits leave no room for the load.
    """
    load, most = checked(models, load, limits)
    if load == 0:
        return priced(models, [0] * len(models))
    reach = Reach(models, most)
    return priced(models, round_greedy(models, _parts(reach, load), load, most))


def _parts(reach: Reach, load: int) -> list[float]:
    """Real shares that take a common time T at most, and sum to the load or a little less."""
    # Flooring loses half a unit a device anyway; a device without a closed form is only known to a
    # whole unit, so that its sum moves in jumps.
    slack = 0.5 + reach.jumps
    low, high, guess = 0.0, float("inf"), reach.guess(load)
    parts = reach.units(0.0)
    for step in range(MOST_STEPS):
        now, rate = reach.units(guess), reach.rate
        missing = load - float(now.sum())
        if missing >= 0:
            low, parts = guess, now
            if missing <= slack:
                break
        else:
            high = guess
        if high - low <= 4e-16 * high:
            break
        guess += (missing - slack / 2) / rate if rate > 0 else float("inf")
        if step % 3 == 2 or not low < guess < high:
            guess = low * 2 if high == float("inf") else (low + high) / 2
    return [float(part) for part in parts]
