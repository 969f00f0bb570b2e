"""Random numbers that depend on (seed, array, unit) only, not on the device that generates them.

One Philox stream per unit (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011):
the key comes from the seed and the array's name, the upper half of the counter is the unit's
number.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

PHILOX_WORDS = 4
"""Numbers per step of Philox's counter."""


def _philox(seed: int, array: str) -> np.random.Philox:
    entropy = [seed % 2**64, zlib.crc32(array.encode())]
    return np.random.Philox(key=np.random.SeedSequence(entropy).generate_state(2, np.uint64))


def unit_streams(seed: int, array: str, first: int, count: int) -> Iterator[np.random.Generator]:
    """Yield a generator for each unit from `first`; it is valid until the next one is taken."""
    bits = _philox(seed, array)
    generator = np.random.Generator(bits)
    state = bits.state
    for unit in range(first, first + count):
        state["state"]["counter"] = np.array([0, 0, unit, 0], np.uint64)
        bits.state = state
        yield generator


def fill_uniform(seed: int, array: str, first: int, out: np.ndarray) -> None:
    """Fill `out` (count,) with numbers from 0 to 1; all units are in one stream, by position."""
    bits = _philox(seed, array)
    bits.advance(first // PHILOX_WORDS)
    skipped = first % PHILOX_WORDS
    out[...] = np.random.Generator(bits).random(skipped + len(out))[skipped:]


def fill_units(seed: int, array: str, first: int, out: np.ndarray) -> None:
    """Fill `out` (count, ...) with standard normal units, converted to its dtype.

    The real and the imaginary part of complex ones are standard normal each.
    """
    real = out.real.dtype
    values = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
    parts = values.view(real).reshape(*out.shape, out.itemsize // real.itemsize)
    for unit, generator in enumerate(unit_streams(seed, array, first, len(out))):
        if real in (np.float32, np.float64):
            generator.standard_normal(out=parts[unit], dtype=real)
        else:
            values[unit] = generator.standard_normal(out.shape[1:]).astype(out.dtype)
    if values is not out:
        out[...] = values
