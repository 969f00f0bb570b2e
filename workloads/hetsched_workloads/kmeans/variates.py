"""Exponential variates that depend on (seed, round, point) only, on any array module.

Points are drawn by a race: with an exponential variate E of each, the point with the smallest
E / w is drawn with a probability proportional to w, whatever the split.
Bits: SplitMix64 with the point as counter (Steele, Lea & Flood, OOPSLA 2014).
"""

from __future__ import annotations

from typing import Any

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = 1 << 64


def stream_key(seed: int, number: int) -> int:
    """Return the key of the stream of a round."""
    return _mixed_word(_mixed_word(seed % _WORD) + number * _GOLDEN)


def exponential(xp: Any, key: int, first: int, count: int) -> Any:
    """Return the variates of the points from `first` on, (count,) float64, all above 0."""
    bits = xp.arange(first + 1, first + 1 + count, dtype=xp.uint64)
    bits *= xp.uint64(_GOLDEN)
    bits += xp.uint64(key)
    bits ^= bits >> xp.uint64(30)
    bits *= xp.uint64(_FIRST)
    bits ^= bits >> xp.uint64(27)
    bits *= xp.uint64(_SECOND)
    bits ^= bits >> xp.uint64(31)
    uniform = (bits >> xp.uint64(11)).astype(xp.float64)
    uniform += 0.5
    uniform *= 2.0**-53
    return -xp.log(uniform)


def _mixed_word(word: int) -> int:
    word = (word + _GOLDEN) % _WORD
    word = (word ^ (word >> 30)) * _FIRST % _WORD
    word = (word ^ (word >> 27)) * _SECOND % _WORD
    return word ^ (word >> 31)
