"""The order of variants in a race: which kernel computes each chunk of a core. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RacePart:
    """A core's part of a race; none by default.

    Attributes
    ----------
    rivals : tuple of str
        They take turns with the best variant.
    kernels : tuple of int
        `Chunk.kernel` of its first chunks.
    chunks : int
        Chunks of its share, the same for all cores of the race.
    """

    rivals: tuple[str, ...] = ()
    kernels: tuple[int, ...] = ()
    chunks: int = 0


def race_order(variants: int, rounds: int) -> tuple[int, ...]:
    """Return the kernel of each chunk: every second round is reversed, against trends."""
    forward = tuple(range(variants))
    return tuple(k for number in range(rounds) for k in (forward, forward[::-1])[number % 2])


def race_part(
    rivals: Sequence[str], rounds: int, shares: Sequence[int], chunks: Sequence[int]
) -> RacePart:
    """Return the part of each core in a race.

    Parameters
    ----------
    rivals : sequence of str
        At least one.
    rounds : int
        Fewer if the load doesn't have as many units.
    shares : sequence of int, units
        Of the cores: enough for one round.
    chunks : sequence of int
        Chunks into which their shares are cut without a race.
    """
    variants = 1 + len(rivals)
    smallest = min(shares)
    possible = min(rounds, smallest // variants)
    count = min(smallest, max(possible * variants, *chunks))
    return RacePart(tuple(rivals), race_order(variants, possible), count)
