"""How long a core's chunks take, by the learnt cost of a call, and how long a share then takes.

Owns the rule only: `assignment` cuts shares into chunks, `tails` sizes what is taken from a tail.
"""

from __future__ import annotations

import numpy as np

from hetsched.models import DeviceModel, PiecewiseLinear, SpeedFunction
from hetsched.models.call_cost import MIN_SIZE_RATIO
from hetsched.models.curves.curve import planner_curve
from hetsched.models.curves.isotonic import rising
from hetsched.models.curves.segments import Floats, Segments
from hetsched.planner.plan_cache import PlanCache
from hetsched.plans.search.recipes import evenly

CHUNKS_PER_CORE = 4
"""Chunks of a core's share if their times allow, so that other devices may steal some; but not
where a tail balances: there own chunks are as long as they may be, since each report costs the
engine a third of a millisecond on cores that compute."""
MIN_CHUNK_SECONDS, MAX_CHUNK_SECONDS = 0.020, 0.080
"""Bounds on a core's chunk: dispatch costs well under 1 % of the minimum, and a cancel or a lost
device at most the maximum."""
MAX_CALL_FRACTION = 0.01
"""Part of a core's time that its calls may cost; a matrix product packs its right side in each.
For that chunks get longer, up to `MAX_COSTLY_CHUNK_SECONDS`."""
MAX_COSTLY_CHUNK_SECONDS = 1.0
"""Bound on a core's chunk where calls are expensive: as long as a cancel may take. A fifth of the
twelfth of the default of ``deadlines.stop``, after which a device that doesn't stop is killed."""
MIN_CALLS_PER_CHUNK = 4
"""A chunk takes at least as long as so many calls, even if that is longer: on a core that other
processes use most of the time, calls take long."""
SHORT_CHUNKS, SHORT_CHUNK_RATIO = 4, 4
"""Until the cost of a call is known, a core's share has so many chunks that are so much shorter
than the others, which show it. One of them may be interrupted. Fewer than `MIN_COMPARED_CHUNKS`
others are too short for calls to matter, more than `MAX_COMPARED_CHUNKS` aren't kept."""
MIN_COMPARED_CHUNKS, MAX_COMPARED_CHUNKS = 3, 255
MAX_KNOT_RATIO = 1.25
"""Sizes between which a share's time with its calls is interpolated. Arbitrary."""
MAX_CALLS_APART = 4
"""Calls of the largest such size: of more, each unit has an equal part of them."""
MAX_UNITS = 2.0**53
"""The largest number of units that is exact."""
ROUNDS = 12
"""The number of calls follows from a share's time, which contains them: rounds until it is known
well enough, as it at least halves the error each time."""


def call_seconds(model: DeviceModel | None, share: float) -> float:
    """Return the cost of a call on a core with `share` units, seconds; 0: none, or unknown."""
    if model is None or not model.call_units or model.link:
        return 0.0
    return model.call_units * float(model.total.time(share)) / share


def longest_chunk(call: float) -> float:
    """Return the bound on a core's chunk, seconds; `call`: the cost of a call, seconds."""
    return max(MAX_CHUNK_SECONDS, float(_worthwhile(np.float64(call))))


def calls_of(seconds: Floats, call: Floats) -> Floats:
    """Return the calls, (n,) float64, in which cores do their parts: 1 or more, not rounded.

    Parameters
    ----------
    seconds, call : (n,) float64, seconds
        Of the whole parts; the cost of a call.
    """
    usual = np.clip(seconds / CHUNKS_PER_CORE, MIN_CHUNK_SECONDS, MAX_CHUNK_SECONDS)
    return np.maximum(1.0, seconds / np.maximum(usual, _worthwhile(call)))


def _worthwhile(call: Floats | np.float64) -> Floats:
    """Return the shortest chunks whose calls are cheap, or that are as long as they may be."""
    chunks = np.minimum(call / MAX_CALL_FRACTION, MAX_COSTLY_CHUNK_SECONDS)
    return np.asarray(np.maximum(chunks, MIN_CALLS_PER_CHUNK * call))


def chunk_count(seconds: float, call: float, *, has_tail: bool = False) -> int:
    """Return the chunks into which a core's part is cut; arguments of `calls_of`, one each.

    `has_tail`: the other part of its share is in a shared tail.
    """
    if has_tail:
        return max(1, round(seconds / longest_chunk(call)))
    if call:
        return max(1, round(float(calls_of(np.array([seconds]), np.array([call]))[0])))
    usual = min(max(seconds / CHUNKS_PER_CORE, MIN_CHUNK_SECONDS), MAX_CHUNK_SECONDS)
    return max(1, round(seconds / usual))


def with_short_chunks(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return chunks of as many units, some of them clearly shorter, in between the others.

    Unchanged if they are too few, too many to be kept, or too small.
    """
    if not MIN_COMPARED_CHUNKS <= len(sizes) <= MAX_COMPARED_CHUNKS:
        return sizes
    short = max(1, sizes[0] // SHORT_CHUNK_RATIO)
    units = sum(sizes) - SHORT_CHUNKS * short
    if units < MIN_SIZE_RATIO * short * (len(sizes) - 1):
        return sizes
    chunks = list(evenly(units, len(sizes) - 1))
    for number in range(SHORT_CHUNKS, 0, -1):  # the first chunk of a kernel is slow
        chunks.insert(1 + (len(sizes) - 2) * number // SHORT_CHUNKS, short)
    return tuple(chunks)


def with_calls(model: DeviceModel, cache: PlanCache) -> SpeedFunction:
    """Return the seconds of a core's share with the calls that `chunk_count` plans for it."""
    curve, call_units = planner_curve(model.total).closed_form(), model.call_units
    if not call_units or curve is None:
        return model.total
    fingerprint = planner_curve(model.total).fingerprint()
    key = None if fingerprint is None else (fingerprint, call_units)
    return cache.curves_with_calls.get_or_compute(key, lambda: _with_calls(curve, call_units))


def _with_calls(curve: Segments, call_units: float) -> SpeedFunction:
    known = curve.table[1, curve.table[1] >= 1.0]
    chunk = MAX_COSTLY_CHUNK_SECONDS / float(curve.time(1.0))
    largest = MAX_CALLS_APART * max(chunk, MIN_CALLS_PER_CHUNK * call_units)
    end = max(2.0, *known.tolist(), min(largest, MAX_UNITS))
    units = np.geomspace(1.0, end, 2 + int(np.log(end) / np.log(MAX_KNOT_RATIO)))
    units = np.union1d(units, known)
    without = np.asarray(curve.time(units), dtype=np.float64)
    call = call_units * without / units
    seconds = without + call
    for _ in range(ROUNDS):
        seconds = without + call * calls_of(seconds, call)
    return PiecewiseLinear().through(units, rising(seconds, np.ones(len(units))))
