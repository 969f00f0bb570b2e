"""Machines drawn at random, from nothing, on virtual clocks: balanced by the fourth run."""

from __future__ import annotations

import random
import statistics

import pytest

import hetsched
from hetsched.config import parse

SHAPE = (150, 64, 64)
UNIT_BYTES = 64 * 64 * 8


def draw(seed: int) -> str:
    """Draw a configuration: 1 to 3 cores and a GPU behind a link, or 2 to 4 cores."""
    chance = random.Random(seed)
    has_gpu = chance.random() < 0.75
    speed = chance.uniform(0.3, 0.8) if chance.random() < 0.5 else None

    def cost(phase: str, rate: float, unit: str) -> str:
        return f'{phase} = {{ gap = "{chance.randint(10, 100)}us", rate = "{rate:.3f}{unit}" }}'

    tables = [
        [f'name = "core{i}"', cost("compute", speed or chance.uniform(0.3, 0.8), "Gflop/s")]
        for i in range(chance.randint(1, 3) + (not has_gpu))
    ]
    if has_gpu:
        tables.append([
            'name = "emu0"', f'memory = "{chance.randint(24, 128) * UNIT_BYTES // 2}B"',
            f"engines = {chance.choice((1, 2))}",
            f"duplex = [{chance.uniform(0.6, 1):.2f}, {chance.uniform(0.6, 1):.2f}]",
            cost("compute", chance.uniform(0.8, 2.5), "Gflop/s"),
            cost("h2d", chance.uniform(0.3, 2.0), "GB/s"),
            cost("d2h", chance.uniform(0.3, 2.0), "GB/s"),
        ])  # fmt: skip
    head = ["[[device]]", 'kind = "emulated"', 'clock = "virtual"']
    return "\n".join(["stealing = false", *(line for table in tables for line in head + table)])


def is_balanced_and_predicted(seed: int) -> bool:
    """By the fourth run."""
    reports = []
    with hetsched.Local(parse(draw(seed), "machine"), learn=False) as local:
        x, y = local.empty(SHAPE, "complex64"), local.empty(SHAPE, "complex64")
        x[...] = 1
        for _ in range(8):
            job = local.submit("fft", x, out=y)
            job.result()
            reports.append(job.report)
    fourth = reports[3]
    unit = max(device.seconds / device.share for device in fourth.devices if device.share)
    errors = [abs(report.predicted_seconds / report.seconds - 1) for report in reports[3:]]
    return fourth.spread <= max(0.10, unit / fourth.seconds) and statistics.median(errors) <= 0.10


def test_the_split_is_found_by_the_fourth_run_and_predicted() -> None:
    assert is_balanced_and_predicted(0)


@pytest.mark.stress
def test_the_split_is_found_on_nearly_all_machines() -> None:
    """Some with little memory need a run more, for their chunks."""
    assert sum(map(is_balanced_and_predicted, range(60))) >= 57
