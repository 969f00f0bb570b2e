"""Shares in proportion to speeds: the CPM of Clarke, section 3."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.partition.distribution import Distribution, Limits, Models, checked, priced


def constant(models: Models, load: int, limits: Limits | None = None) -> Distribution:
    """Split `load` in proportion to the speeds at an even share. O(p^2) at worst, with limits.

    Parameters
    ----------
    models : sequence of SpeedFunction
    load : int, units
    limits : sequence of int or None, units, optional
        The most that each device takes. What a full device can't take goes to the others, in
        proportion.

    Returns
    -------
    Distribution
        Rounded by largest remainder, ties by index.

    Raises
    ------
    UsageError, DataError
        Malformed; the limits leave no room for the load.
    """
    load, most = checked(models, load, limits)
    even = max(load / len(models), 1.0)
    parts = _proportional([float(model.speed(even)) for model in models], load, most)
    return priced(models, _largest_remainder(parts, load, most))


def _proportional(speeds: list[float], load: int, most: list[int]) -> list[float]:
    """Real parts in proportion to `speeds`, none above its limit."""
    parts = [0.0] * len(speeds)
    free = set(range(len(speeds)))
    left = load
    while free and left > 0:
        total = sum(speeds[i] for i in free)
        full = {i for i in free if left * speeds[i] >= most[i] * total}
        for i in full or free:
            parts[i] = float(most[i]) if full else left * speeds[i] / total
        if not full:
            break
        # The limits that bind now still do when the others are handed more.
        left -= sum(most[i] for i in full)
        free -= full
    return parts


def _largest_remainder(parts: Sequence[float], load: int, most: Sequence[int]) -> list[int]:
    shares = [min(int(part), limit) for part, limit in zip(parts, most, strict=True)]
    open_ = [i for i, share in enumerate(shares) if share < most[i]]
    open_.sort(key=lambda i: (shares[i] - parts[i], i))
    left = load - sum(shares)
    for i in open_[:left]:
        shares[i] += 1
    return shares
