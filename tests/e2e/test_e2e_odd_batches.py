"""A plug-in whose odd batches need more memory than the next larger even ones."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from odd_batches import ODD_BYTES, WIDTH

import hetsched
from hetsched.config import parse

REFERENCE = "odd_batches:OddBatches"
CORES = """
[[device]]
kind = "emulated"
name = "core"
count = 2
clock = "virtual"
compute = { unit = "1ms" }
"""
LINKED = """
[[device]]
kind = "emulated"
name = "linked"
clock = "virtual"
core = 0
memory = "MEMORY B"
engines = 2
compute = { gap = "100us", unit = "1ms" }
h2d = { gap = "50us", rate = "1MB/s" }
d2h = { gap = "50us", rate = "1MB/s" }
"""
LOADS = (16, 17, 33, 100, 399, 400)


def values(units: int) -> np.ndarray:
    return np.random.default_rng(units).standard_normal((units, WIDTH))


def check(local: hetsched.Local, units: int, shared: bool = False) -> None:
    x = values(units)
    job = local.submit(REFERENCE, x, verify=True, units=units, shared=shared)
    np.testing.assert_array_equal(job.result(timeout=60), x + x[:, :1])
    assert job.report is not None
    assert sum(device.share for device in job.report.devices) == units


def test_cores_compute_odd_and_even_chunks() -> None:
    with hetsched.Local(parse(CORES, "odd"), learn=False) as local:
        for units in LOADS:
            check(local, units)


def test_cores_copy_odd_and_even_chunks_of_files(tmp_path: Path) -> None:
    units = 101
    np.save(tmp_path / "x.npy", values(units))
    with hetsched.Local(parse(CORES, "odd"), learn=False) as local:
        target = tmp_path / "y.npy"
        job = local.submit(REFERENCE, tmp_path / "x.npy", out=target, units=units)
        job.result(timeout=60)
    np.testing.assert_array_equal(np.load(target), values(units) + values(units)[:, :1])


@pytest.mark.parametrize(("room", "shared"), [(1, False), (5, True), (40, False)])
def test_a_small_memory_holds_odd_and_even_chunks(room: int, shared: bool) -> None:
    memory = room * (16 * WIDTH + ODD_BYTES) + 1024
    config = parse((LINKED + CORES).replace("MEMORY ", str(memory)), "odd")
    with hetsched.Local(config, learn=False) as local:
        for units in random.Random(room).sample(LOADS, 2):
            for _ in range(3):  # unmeasured, factored, planned
                check(local, units, shared)
