"""A chunk of any size as calls of few sizes: powers of two, each with a plan of its own. Pure."""

from __future__ import annotations

from collections.abc import Iterator


def powers(most: int) -> tuple[int, ...]:
    """The powers of two up to `most` (at least 1), largest first: powers(6) is (4, 2, 1)."""
    return tuple(1 << k for k in range(max(1, most).bit_length() - 1, -1, -1))


def pieces(count: int, largest: int) -> Iterator[tuple[int, int]]:
    """(first, size) of the pieces that make up `count` units.

    As many of `largest` as fit, then the binary expansion of what is left.

    `largest` is a power of two; every size is in ``powers(largest)``.
    """
    first = 0
    size = largest
    while first < count:
        while size > count - first:
            size >>= 1
        yield first, size
        first += size


def cache_sized(unit_bytes: int, chunk: int, cache_bytes: int) -> int:
    """The largest power of two that is at most `chunk` and whose units fit `cache_bytes`; or 1."""
    return powers(min(chunk, cache_bytes // max(1, unit_bytes)))[0]
