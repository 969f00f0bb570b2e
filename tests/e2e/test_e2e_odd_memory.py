"""A device whose memory holds an odd number of units, on a virtual clock: filled by a pattern.

The device itself refuses what doesn't fit, and what a copy or a kernel reads too early is poison.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hetsched
from hetsched.config import parse

UNITS, SIDE = 60, 64
PLANE = SIDE * SIDE * 8
TEXT = """
[[device]]
kind = "emulated"
name = "odd"
clock = "virtual"
core = 0
memory = "{memory}B"
engines = {engines}
compute = {{ gap = "300us", unit = "1ms" }}
h2d = {{ gap = "200us", rate = "109MB/s" }}
d2h = {{ gap = "200us", rate = "109MB/s" }}
"""


@pytest.mark.parametrize("engines", [1, 2])
def test_room_for_5_units_is_filled_by_chunks_of_2_and_3(engines: int) -> None:
    x = np.arange(UNITS * SIDE * SIDE, dtype=np.float32).reshape(UNITS, SIDE, SIDE) % 97
    config = parse(TEXT.format(memory=5 * 2 * PLANE, engines=engines), "odd")
    with hetsched.Local(config, learn=False) as local:
        for _ in range(4):
            job = local.submit("fft", x.astype(np.complex64), verify=True)
            y = job.result(timeout=60)
            np.testing.assert_allclose(y, np.fft.fft2(x), rtol=1e-4, atol=1e-1)
    report = job.report
    assert report is not None
    assert report.predicted_seconds == pytest.approx(report.seconds, rel=0.02)
    (chunks,) = (device.chunks for device in report.devices)
    assert sum(chunks) == UNITS
    middle = chunks[6:-6]
    assert {a + b for a, b in itertools.pairwise(middle)} == {5}
    assert set(middle) == {2, 3}
