"""What coordinator and hosts say about a grid that hosts advance; see `cluster.stencil`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from hetsched.cluster.regions import Box


class Layout(msgspec.Struct, frozen=True, array_like=True):
    """An array behind a message, in C order; with a `path` its rows are those of a `.npy` file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: str = ""
    first: int = 0


def layouts(arrays: Mapping[str, np.ndarray] | Iterable[tuple[str, np.ndarray]]) -> Any:
    items = arrays.items() if isinstance(arrays, Mapping) else arrays
    return tuple(Layout(name, str(array.dtype), array.shape) for name, array in items)


class Open(msgspec.Struct, frozen=True, tag=True):
    """Take part in a job of `steps` on a grid, as `me`; most fields are those of `Blocks`.

    `limit` is the parameter that is the number of steps. `job` names its checkpoints, too; those
    of jobs with the same `key` will also do. `inputs` and `outputs` are the whole arrays with
    `axes`.
    """

    epoch: int
    job: str
    workload: str
    params: dict[str, Any]
    options: dict[str, Any]
    shape: tuple[int, int]
    periodic: tuple[bool, bool]
    reach: int
    steps: int
    limit: str
    axes: dict[str, tuple[int, int]]
    state: dict[str, str]
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    key: str = ""
    me: str = ""


class Close(msgspec.Struct, frozen=True, tag=True):
    """The job has ended; `keeps`: its checkpoints may be of use."""

    epoch: int
    keeps: bool


class Cells(msgspec.Struct, frozen=True, tag=True):
    """Cells of rectangle `source` of those of `host`, after `iteration`, for the receiver's.

    For each transfer, in order, an array of each input, sorted by name. `source` -1: of inputs
    that never change.
    """

    job: str
    generation: int
    iteration: int
    host: str
    source: int
    arrays: tuple[Layout, ...]


class Copy(msgspec.Struct, frozen=True, tag=True):
    """One of the `count` rectangles of `owner` in the checkpoint `name`, to be written."""

    job: str
    name: str
    owner: str
    count: int
    box: Box
    arrays: tuple[Layout, ...]


class Results(msgspec.Struct, frozen=True, tag=True):
    """Outputs of a rectangle."""

    epoch: int
    generation: int
    box: Box
    results: tuple[Layout, ...]
