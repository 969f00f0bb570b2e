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


def unit_streams(seed: int, array: str, first: int, count: int) -> Iterator[np.random.Generator]:
    """Yield a generator for each unit from `first`; it is valid until the next one is taken."""
    entropy = [seed % 2**64, zlib.crc32(array.encode())]
    bits = np.random.Philox(key=np.random.SeedSequence(entropy).generate_state(2, np.uint64))
    generator = np.random.Generator(bits)
    state = bits.state
    for unit in range(first, first + count):
        state["state"]["counter"] = np.array([0, 0, unit, 0], np.uint64)
        bits.state = state
        yield generator


def fill_normal(seed: int, array: str, first: int, out: np.ndarray) -> None:
    """Fill `out` (count, ...), float32 or float64, C-contiguous, with standard normal units."""
    for unit, generator in zip(
        range(len(out)), unit_streams(seed, array, first, len(out)), strict=True
    ):
        generator.standard_normal(out=out[unit, ...], dtype=out.dtype)


def fill_uniform(seed: int, array: str, first: int, out: np.ndarray) -> None:
    """Fill `out` (count,) with numbers from 0 to 1; all units are in one stream, by position."""
    entropy = [seed % 2**64, zlib.crc32(array.encode())]
    bits = np.random.Philox(key=np.random.SeedSequence(entropy).generate_state(2, np.uint64))
    bits.advance(first // PHILOX_WORDS)
    skipped = first % PHILOX_WORDS
    out[...] = np.random.Generator(bits).random(skipped + len(out))[skipped:]


def fill_units(seed: int, array: str, first: int, out: np.ndarray) -> None:
    """Fill `out` (count, ...) with standard normal units, converted to its dtype.

    The real and the imaginary part of complex ones are standard normal each.
    """
    real = out.real.dtype
    values = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
    if real in (np.float32, np.float64):
        parts = values.view(real).reshape(*out.shape, out.itemsize // real.itemsize)
        fill_normal(seed, array, first, parts)
    else:
        for unit, generator in enumerate(unit_streams(seed, array, first, len(out))):
            values[unit] = generator.standard_normal(out.shape[1:]).astype(out.dtype)
    if values is not out:
        out[...] = values
