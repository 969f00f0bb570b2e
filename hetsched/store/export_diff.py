"""What two exports say differently, key by key. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hetsched.models import Knot
from hetsched.store.export_format import Export, Learnt
from hetsched.store.models_db import ModelKey


@dataclass(frozen=True)
class Difference:
    """Two models of one key; either is None where it isn't known.

    Attributes
    ----------
    ratios : sequence of (float, float), units and a ratio
        Seconds of the second over seconds of the first, at the sizes that both have measured; if
        there are none, at those of either that lie within the sizes of both.
    agree : bool
        At no size that both have measured do their confidence intervals lie apart.
    """

    key: ModelKey
    first: Learnt | None
    second: Learnt | None
    ratios: Sequence[tuple[float, float]] = ()
    agree: bool = True


def difference(first: Export, second: Export) -> list[Difference]:
    """All keys of both, sorted."""
    ours = {one.key: one for one in first.models}
    theirs = {one.key: one for one in second.models}
    return [_of(key, ours.get(key), theirs.get(key)) for key in sorted(ours | theirs)]


def _of(key: ModelKey, first: Learnt | None, second: Learnt | None) -> Difference:
    if first is None or second is None:
        return Difference(key, first, second)
    one, two = first.history().model(), second.history().model()
    if one is None or two is None:
        return Difference(key, first, second)
    mine, theirs = first.knots("total"), second.knots("total")
    sizes = _common([knot.units for knot in mine], [knot.units for knot in theirs])
    ratios = [(size, float(two.time(size)) / float(one.time(size))) for size in sizes]
    measured = {knot.units: knot for knot in theirs}
    pairs = [(knot, measured[knot.units]) for knot in mine if knot.units in measured]
    return Difference(key, first, second, ratios, all(_touch(*pair) for pair in pairs))


def _common(mine: Sequence[float], theirs: Sequence[float]) -> list[float]:
    both = sorted(set(mine).intersection(theirs))
    if both:
        return both
    least, most = max(min(mine), min(theirs)), min(max(mine), max(theirs))
    return sorted({size for size in (*mine, *theirs) if least <= size <= most})


def _touch(one: Knot, two: Knot) -> bool:
    return one.low <= two.high and two.low <= one.high
