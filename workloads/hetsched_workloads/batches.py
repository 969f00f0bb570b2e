"""Splits a chunk of any size into calls of a few sizes: powers of two, one plan each. Pure."""

from __future__ import annotations

from collections.abc import Iterator


def powers(limit: int) -> tuple[int, ...]:
    """Return the powers of two up to `limit`, largest first: powers(6) is (4, 2, 1)."""
    return tuple(1 << k for k in range(max(1, limit).bit_length() - 1, -1, -1))


def pieces(count: int, largest: int) -> Iterator[tuple[int, int]]:
    """Yield (first, size) of the pieces of `count` units.

    As many of size `largest` (a power of two) as fit, then the binary expansion of the remainder;
    every size is in ``powers(largest)``.
    """
    first = 0
    size = largest
    while first < count:
        while size > count - first:
            size >>= 1
        yield first, size
        first += size


def cache_sized(unit_bytes: int, chunk: int, cache_bytes: int) -> int:
    """Return the largest power of two of at most `chunk` units that fit `cache_bytes`; or 1."""
    return powers(min(chunk, cache_bytes // max(1, unit_bytes)))[0]
