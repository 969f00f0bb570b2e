"""Ranges of units for work that isn't the load itself: filling, checking. Pure."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

SAMPLES = 8
"""Units that are compared in full beside the ends of the shares. Arbitrary."""


def ranges(load: int, parts: int) -> list[tuple[int, int]]:
    """(first, count) of at most `parts` ranges that cover `load` units evenly; none is empty."""
    parts = min(parts, load)
    bounds = [load * part // parts for part in range(parts + 1)]
    return [(low, high - low) for low, high in itertools.pairwise(bounds)]


def sample_units(load: int, edges: Sequence[int], seed: int) -> list[int]:
    """Units to compare in full: the edges of the shares, and a few at random."""
    chosen = random.Random(seed).sample(range(load), min(SAMPLES, load))
    return sorted({unit for unit in [*edges, *chosen] if 0 <= unit < load})
