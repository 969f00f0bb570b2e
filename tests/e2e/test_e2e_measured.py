"""Measurement jobs measure the sizes that were requested."""

from __future__ import annotations

import hetsched
from hetsched.config import parse
from hetsched.job import JobSpec

UNITS = 32
MACHINE = """
[[device]]
kind = "cpu"
count = 1

[[device]]
kind = "emulated"
name = "slow"
memory = "1MiB"
compute = { gap = "1ms", unit = "2ms" }
h2d = { gap = "20us", unit = "20us" }
d2h = { gap = "20us", unit = "20us" }
"""


def test_a_share_in_many_chunks_stays_with_its_device() -> None:
    """Although a core that finishes long before could take most of it."""
    with hetsched.Local(parse(MACHINE, "test"), learn=False) as local:
        job = local.run(
            JobSpec(
                workload="fft",
                params={"batch": f"{2 * UNITS}x128x128"},
                devices=("cpu0", "slow"),
                measure={"cpu0": "scipy", "slow": "scipy"},
            )
        )
        job.result(timeout=60)

    assert job.report is not None
    assert [(device.device, device.share) for device in job.report.devices] == [
        ("cpu0", UNITS),
        ("slow", UNITS),
    ]
    assert len(job.report.devices[1].chunks) > 3
