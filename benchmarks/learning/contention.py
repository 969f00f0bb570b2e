"""Simulated machines whose devices slow each other down, for as long as they run at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from hetsched.planner.records import JobPlan
from hetsched.simulate.machine import ChunkTimings, SimulatedMachine, device_seconds

KeptPace = Callable[[str, frozenset[str]], float]
"""(device, other devices that run at present) -> the part of its pace that it keeps, <= 1."""

Progress = list[tuple[float, float]]
"""(time, seconds of its own timeline that it has done by then), with constant pace between."""


@dataclass(frozen=True)
class ContendedMachine(SimulatedMachine):
    """A machine whose devices have their costs only when alone.

    Attributes
    ----------
    kept_pace : callable
    """

    kept_pace: KeptPace = field(kw_only=True)

    def play(
        self, plan: JobPlan, noise: float = 0.0, rng: random.Random | None = None
    ) -> dict[str, ChunkTimings]:
        """Run `plan` as `SimulatedMachine.play`, each device slowed down while others run."""
        alone = super().play(plan, noise, rng)
        seconds = {device: device_seconds(chunks) for device, chunks in alone.items()}
        progress = progress_of(seconds, self.kept_pace)
        return {device: _stretched(chunks, progress[device]) for device, chunks in alone.items()}


def progress_of(seconds: Mapping[str, float], kept_pace: KeptPace) -> dict[str, Progress]:
    """Return the progress of devices that start together.

    Parameters
    ----------
    seconds : mapping of device to float, seconds
        What each would take alone, > 0.
    kept_pace : callable
    """
    progress: dict[str, Progress] = {device: [(0.0, 0.0)] for device in seconds}
    running, now = dict(seconds), 0.0
    while running:
        paces = {d: kept_pace(d, frozenset(running) - {d}) for d in running}
        step = min(remaining / paces[device] for device, remaining in running.items())
        now += step
        for device in list(running):
            running[device] -= step * paces[device]
            if running[device] <= 1e-12 * seconds[device]:
                del running[device]
            done = seconds[device] - running.get(device, 0.0)
            progress[device].append((now, done))
    return progress


def _stretched(chunks: ChunkTimings, progress: Progress) -> ChunkTimings:
    times, done = zip(*progress, strict=True)

    def moment(own: float) -> float:
        return float(np.interp(own, done, times))

    def span(own: tuple[float, float] | None) -> tuple[float, float] | None:
        return None if own is None else (moment(own[0]), moment(own[1]))

    return tuple(
        (
            units,
            msgspec.structs.replace(
                chunk,
                copy_in=span(chunk.copy_in),
                compute=span(chunk.compute),
                copy_out=span(chunk.copy_out),
            ),
        )
        for units, chunk in chunks
    )
