"""A made-up iterative job: two cores and a faster device that loses its speed on a cliff."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hetsched.explain import DeviceExplanation, Explanation
from hetsched.explain.recorder import IterationRecorder
from hetsched.explain.records import IterationHistory, RowMove, WrittenCheckpoint

DEVICES = ("cpu0", "cpu1", "emu0")
SECONDS_PER_ROW = (1e-4, 1e-4, 2.5e-5)
SPLITS = ((400, 400, 400), (200, 200, 800), (240, 240, 720))
"""Until iteration 4, until 9, and from then on."""
CLIFF_ROWS = 750
"""Of emu0, beyond which a row takes twice as long."""


@dataclass(frozen=True)
class PhaseTimes:
    compute: float
    transfer: float = 0.0
    wait: float = 0.0
    converge: float = 0.0
    save: float = 0.0


def split_at(iteration: int) -> tuple[int, ...]:
    return SPLITS[0 if iteration <= 4 else 1 if iteration <= 9 else 2]


def phases(rows: Sequence[int], moving: float = 0.0) -> list[PhaseTimes]:
    """Return what each device does in an iteration; `moving`: more time for emu0's transfer."""
    compute = [n * s for n, s in zip(rows, SECONDS_PER_ROW, strict=True)]
    if rows[2] > CLIFF_ROWS:
        compute[2] *= 2
    transfer = [0.0, 0.0, 5e-4 + moving]
    total = max(map(sum, zip(compute, transfer, strict=True)))
    return [PhaseTimes(c, t, total - c - t, 2e-4) for c, t in zip(compute, transfer, strict=True)]


def recorded(
    iterations: int = 60, split: Callable[[int], tuple[int, ...]] = split_at, first: int = 1
) -> IterationRecorder:
    recorder = IterationRecorder(DEVICES, first)
    before = split(first)
    for iteration in range(first, iterations + 1):
        rows = split(iteration)
        has_moved = rows != before
        if has_moved:
            recorder.announce(
                RowMove(rows=rows, reason="imbalance", expected_after=0.0201, expected_cost=0.005)
            )
        times = phases(rows, moving=0.004 if has_moved else 0.0)
        recorder.add(iteration, rows, times, 0.5**iteration)
        before = rows
    return recorder


def history(iterations: int = 60) -> IterationHistory:
    recorder = recorded(iterations)
    recorder.checkpoint(WrittenCheckpoint(20, 0.004, 3 << 20))
    recorder.checkpoint(WrittenCheckpoint(40, 0.006, 3 << 20))
    recorder.repeat(1)
    recorder.end(converged=True)
    return recorder.history()


def explanation(iterations: int = 60) -> Explanation:
    devices = tuple(
        DeviceExplanation(
            device=name,
            kind="cpu" if name.startswith("cpu") else "emulated",
            variant="numpy",
            planned=SPLITS[0][i],
            share=SPLITS[2][i],
        )
        for i, name in enumerate(DEVICES)
    )
    return Explanation(
        job=7,
        state="done",
        workload="jacobi",
        params={"n": 1200},
        load=1200,
        devices=devices,
        iterations=history(iterations),
    )
