"""The blocks of a grid and which of them exchange halos."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.errors import UsageError

Ints: TypeAlias = npt.NDArray[np.int64]
Powers: TypeAlias = Sequence[float] | npt.NDArray[np.float64]
"""Of each host, in any unit: how much faster it computes a block than others."""


class Grid:
    """Blocks at the points of a grid of `shape`, numbered in C order.

    With `corners`, blocks that touch at a corner are neighbours, too (8 in two dimensions, 26 in
    three); with `periodic`, opposite edges are neighbours. `neighbours[i]` has the neighbours of
    block i, `len(grid)` where there is none.
    """

    def __init__(
        self, shape: Sequence[int], *, corners: bool = False, periodic: bool = False
    ) -> None:
        self.shape = tuple(shape)
        if not self.shape or min(self.shape) < 3:
            raise UsageError(f"a grid of {'x'.join(map(str, shape))}: each axis needs 3 blocks")
        self.coordinates: Ints = np.indices(self.shape).reshape(len(self.shape), -1).T
        steps = [
            step
            for step in itertools.product((-1, 0, 1), repeat=len(self.shape))
            if sum(map(abs, step)) == 1 or (corners and any(step))
        ]
        self.neighbours: Ints = np.empty((len(self), len(steps)), np.int64)
        for k, step in enumerate(steps):
            there = self.coordinates + step
            inside = ((there >= 0) & (there < self.shape)).all(axis=1)
            index = np.ravel_multi_index(tuple(there.T), self.shape, mode="wrap")
            self.neighbours[:, k] = index if periodic else np.where(inside, index, len(self))

    def __len__(self) -> int:
        return math.prod(self.shape)

    @property
    def edges(self) -> int:
        return int((self.neighbours < len(self)).sum()) // 2
