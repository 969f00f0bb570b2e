"""Hill climbing: units moved between chunks, chunks split and joined, while a plan gets faster.

Every step looks at all neighbours of a plan at once and takes the best that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hetsched.plans.batch_timeline import Sizes

Judge = Callable[[Sizes], tuple[float, Sequence[int]] | None]


def neighbours(chunks: Sequence[int], step: int) -> Sizes:
    """All plans that differ by one move of `step` units, one chunk split or two joined.

    Parameters
    ----------
    chunks : (n,) int, units
    step : int, units

    Returns
    -------
    (moves, n + 1) int64, units
        No chunk is larger than the largest plus `step`, but for joined ones. Zeros at the end.
    """
    plan = np.array([*chunks, 0], dtype=np.int64)
    count = len(chunks)
    donors, takers = _pairs(count)
    keep = plan[donors] > step
    donors, takers = donors[keep], takers[keep]
    moved = np.repeat(plan[None, :], len(donors), axis=0)
    rows = np.arange(len(donors))
    moved[rows, donors] -= step
    moved[rows, takers] += step
    return np.concatenate((moved, _split(plan[:-1]), _joined(plan)))


def bent(chunks: Sequence[int], amount: float) -> Sizes:
    """Plans whose chunks all change a little: tilted, bowed, or steeper at one end.

    Parameters
    ----------
    chunks : (n,) int, units
    amount : float
        Relative change where it is largest.

    Returns
    -------
    (plans, n + 1) int64, units
    """
    plan = np.array(chunks, dtype=float)
    place = np.linspace(-1, 1, len(plan)) if len(plan) > 1 else np.zeros(1)
    shapes = np.stack((place, place**2, np.exp(-2 - 2 * place), np.exp(-2 + 2 * place), place**3))
    factors = np.concatenate([1 + sign * amount * shapes for sign in (1, -1, 0.5, -0.5)])
    sizes = plan * factors
    ends = np.rint(np.cumsum(sizes * (plan.sum() / sizes.sum(axis=1))[:, None], axis=1))
    whole: Sizes = np.diff(ends.astype(np.int64), axis=1, prepend=0, append=int(plan.sum()))
    positive: Sizes = whole[(whole[:, :-1] > 0).all(axis=1)]
    return positive


def _pairs(count: int) -> tuple[Sizes, Sizes]:
    """Donors and takers: all pairs in short plans; in long ones neighbours, and both ends."""
    first, second = np.divmod(np.arange(count * count), count)
    ends = 3 if count > 12 else count
    near = np.abs(first - second) <= 2
    outer = (first < ends) | (second < ends) | (first >= count - ends) | (second >= count - ends)
    centre = (first == count // 2) | (second == count // 2)
    chosen = (first != second) & (near | (outer & (centre | (count <= 12))))
    return first[chosen], second[chosen]


def _split(plan: Sizes) -> Sizes:
    """Each chunk of two units or more in halves."""
    several = np.flatnonzero(plan > 1)
    columns = np.arange(len(plan) + 1)
    source = columns[None, :] - (columns[None, :] > several[:, None])
    sizes = plan[np.minimum(source, len(plan) - 1)]
    rows = np.arange(len(several))
    sizes[rows, several] = (plan[several] + 1) // 2
    sizes[rows, several + 1] = plan[several] // 2
    return sizes


def _joined(plan: Sizes) -> Sizes:
    """Each chunk with the next; `plan` ends with a zero."""
    joints = np.arange(len(plan) - 2)
    columns = np.arange(len(plan))
    source = columns[None, :] + (columns[None, :] > joints[:, None])
    sizes = np.append(plan, 0)[source]
    rows = np.arange(len(joints))
    sizes[rows, joints] = plan[joints] + plan[joints + 1]
    return sizes
