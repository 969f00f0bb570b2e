"""Devices unlike the others, whose memory is unknown: they may be far slower, or beyond a cliff.

Equal devices presumably have equal speeds, so a share that is bad for such a device is mostly that
of a single unusual one, e.g. a GPU beside cores.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence

from hetsched.partition.distribution import Limits

MIN_ALIKE = 2
"""Devices of one kind that make others unusual."""
FIRST_WEIGHT = 0.5
"""Part of an equal share that a device unlike the others gets in the first iteration. Arbitrary:
it costs one iteration little if the device is fast, and halves the first fall if it isn't."""
MAX_CUT = 0.7
"""Part of a share below which a slow device's next one is doubtful: a cliff may be in between.
Arbitrary."""


def unlike_devices(
    devices: Collection[int], kinds: Sequence[str], capacities: Limits
) -> frozenset[int]:
    """Return those of `devices` whose memory is unknown and that aren't of the usual kind.

    If there are no equal ones, each of them is unusual.
    """
    usual, count = Counter(kinds[i] for i in devices).most_common(1)[0]
    return frozenset(
        i
        for i in devices
        if capacities[i] is None
        and (kinds[i] != usual or count < MIN_ALIKE)
        and len(set(kinds)) > 1
    )


def first_limits(
    devices: Collection[int], unlike: Collection[int], load: int, limits: Sequence[int]
) -> Sequence[int]:
    """Return `limits`, less for unlike devices beside several equal ones.

    These may be far slower, or have a cliff far below an equal share; faster ones lose little.
    """
    usual = len(devices) - len(unlike)
    if usual < MIN_ALIKE or not unlike:
        return limits
    share = load / (usual + FIRST_WEIGHT * len(unlike))
    first_share = math.ceil(FIRST_WEIGHT * share)
    return [min(bound, first_share) if i in unlike else bound for i, bound in enumerate(limits)]


def halfway(share: int, demanded: int) -> int:
    """Return the next share of an unlike device, whose only measured share demands `demanded`.

    Either the device is slow, or `share` is beyond a cliff: halfway by logarithms costs little in
    the first case, and spares most of the way back in the second.
    """
    return round(math.sqrt(share * demanded)) if demanded < MAX_CUT * share else demanded
