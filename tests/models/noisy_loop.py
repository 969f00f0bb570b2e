"""Four devices made of curves, with noise and outliers, in a loop of plan, run and learn."""

from __future__ import annotations

import numpy as np

from hetsched.models import PiecewiseLinear
from hetsched.models.history import History
from hetsched.models.samples import Sample
from hetsched.partition import geometric

LOAD = 1000
NOISE, HICCUPS, HICCUP = 0.05, 0.01, 20.0
"""Log-normal noise of each time; the share of times that take so many times as long."""
MARGIN = 0.025
"""A new split must promise at least this gain; the engine's Balancer is stricter."""


class Loop:
    """One seed: devices of random speed functions, what was learnt of them, and their split."""

    def __init__(self, seed: int, noise: float = NOISE, hiccups: float = HICCUPS) -> None:
        self.rng = np.random.default_rng(seed)
        self.noise, self.hiccups = noise, hiccups
        self.truth = [self._device() for _ in range(4)]
        self.pace = [1.0] * 4
        self.histories = [History() for _ in self.truth]
        self.shares: tuple[int, ...] = (LOAD // 4,) * 4
        self.runs = 0

    def _device(self) -> PiecewiseLinear:
        units = np.array([20.0, 100, 300, 700, 1000])
        speeds = self.rng.uniform(50, 400) * np.cumprod(self.rng.uniform(0.9, 1.1, 5))
        return PiecewiseLinear(zip(units, np.maximum.accumulate(units / speeds), strict=True))

    @property
    def best(self) -> float:
        """The makespan of the best fixed split, seconds, while no device has changed."""
        return geometric(self.truth, LOAD).makespan

    def run(self) -> tuple[float, float]:
        """One run with what is known now; its noise-free makespan, seconds, and spread."""
        models = [history.model(False) for history in self.histories]
        ready = [model for model in models if model is not None]
        if len(ready) == len(models):
            best = geometric(ready, LOAD)
            now = max(float(m.time(x)) for m, x in zip(ready, self.shares, strict=True))
            if best.makespan < (1 - MARGIN) * now:
                self.shares = best.shares
        return self._execute()

    def _execute(self) -> tuple[float, float]:
        self.runs += 1
        times = [
            pace * float(curve.time(share))
            for pace, curve, share in zip(self.pace, self.truth, self.shares, strict=True)
        ]
        for share, seconds, history in zip(self.shares, times, self.histories, strict=True):
            if share:
                history.add([Sample("total", share, seconds * self._luck())])
        busy = [time for time in times if time]
        return max(busy), max(busy) / min(busy) - 1

    def _luck(self) -> float:
        hiccup = HICCUP if self.rng.random() < self.hiccups else 1.0
        return float(np.exp(self.noise * self.rng.standard_normal())) * hiccup
