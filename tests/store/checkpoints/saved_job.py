"""A small checkpoint, and how it is saved and loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from diffusing_workload import Diffusion, DiffusionParams

from hetsched.iterations.saved_state import SavedState
from hetsched.iterations.serial import run
from hetsched.store.checkpoint import (
    CheckpointRecord,
    Problem,
    data_digest,
    load_checkpoint,
    problem_of,
    save_checkpoint,
)

X = np.random.default_rng(5).standard_normal((24, 4))
WORKLOAD = Diffusion()
PARAMS = DiffusionParams()


@cache
def _saved(params: DiffusionParams, after: int) -> SavedState:
    saved = run(WORKLOAD, params, {"x": X}, (24,), save_after=after).saved
    assert saved is not None
    return saved


@dataclass(frozen=True)
class SavedJob:
    """A job of the toy workload, and where its checkpoint is."""

    path: str
    params: DiffusionParams = PARAMS
    x: np.ndarray | None = None

    @property
    def problem(self) -> Problem:
        x = X if self.x is None else self.x
        specs = [replace(WORKLOAD.arrays(self.params)[0], dtype=x.dtype.name)]
        return problem_of(WORKLOAD, self.params, specs, {"x": data_digest(x)})[0]

    def state(self, after: int = 4) -> SavedState:
        """Return what to save after an iteration; it may be changed."""
        saved = _saved(self.params, after)
        arrays = {name: array.copy() for name, array in saved.arrays.items()}
        return SavedState(after, arrays, {n: value.copy() for n, value in saved.values.items()})

    def save(self, after: int = 4, saved: SavedState | None = None) -> SavedState:
        saved = saved or self.state(after)
        save_checkpoint(self.path, saved, self.problem, residual=0.5, now=1.8e9)
        return saved

    def load(self) -> tuple[CheckpointRecord, SavedState]:
        return load_checkpoint(self.path, WORKLOAD, self.params, self.problem)

    def with_params(self, **changes: object) -> SavedJob:
        return replace(self, params=DiffusionParams(**changes))  # type: ignore[arg-type]
