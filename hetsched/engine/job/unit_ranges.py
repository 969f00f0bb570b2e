"""Divides units among the devices that fill inputs and check results. Pure."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

RANDOM_SAMPLES = 8
"""Random units that are compared with the reference, besides the edges of shares. Arbitrary."""


def ranges(load: int, parts: int) -> list[tuple[int, int]]:
    """Divide `load` units evenly into (first, count) of at most `parts` ranges; none is empty."""
    parts = min(parts, load)
    bounds = [load * part // parts for part in range(parts + 1)]
    return [(low, high - low) for low, high in itertools.pairwise(bounds)]


def sample_units(load: int, edges: Sequence[int], seed: int) -> list[int]:
    """Units to compare with the reference: the edges of the shares, and a few at random."""
    sampled = random.Random(seed).sample(range(load), min(RANDOM_SAMPLES, load))
    return sorted({unit for unit in [*edges, *sampled] if 0 <= unit < load})
