"""How well a run went: as predicted, and whether all devices finished together. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from hetsched.engine.planning.device_run import DeviceRun, makespan, spread
from hetsched.models.usual_deviation import UsualDeviation
from hetsched.planner.rebalancing.plan_comparison import NEGLIGIBLE_SECONDS, prediction_error
from hetsched.planner.rebalancing.rebalancer import MAX_PREDICTION_ERROR
from hetsched.planner.records import JobPlan

MAX_SPREAD = 0.10
"""Maximum spread of the devices' times under a good plan. Arbitrary."""


@dataclass(frozen=True)
class RunQuality:
    """Relative error of the predicted time, and relative spread of the devices' times.

    Both are infinite for a plan that isn't to be repeated, which tried something.
    """

    error: float
    spread: float

    @property
    def is_trial(self) -> bool:
        """Whether the plan tried something, or had no prediction."""
        return math.isinf(self.error)

    @property
    def is_good(self) -> bool:
        """Whether all devices finished together and as predicted."""
        return self.error <= MAX_PREDICTION_ERROR and self.spread <= MAX_SPREAD


def run_quality(plan: JobPlan, runs: Mapping[str, DeviceRun]) -> RunQuality:
    """Return how well a run of `plan` went."""
    if plan.is_exploring or plan.has_probes or plan.tries_sizes:
        return RunQuality(math.inf, math.inf)
    seconds = [run.seconds for run in runs.values() if run.chunks]
    is_negligible = not seconds or max(seconds) - min(seconds) <= NEGLIGIBLE_SECONDS
    return RunQuality(
        prediction_error(plan, makespan(runs)), 0.0 if is_negligible else spread(runs)
    )


@dataclass
class UsualQuality:
    """How the last runs of a kind of job went, on a machine that may be noisy."""

    _error: UsualDeviation = field(default_factory=lambda: UsualDeviation(MAX_PREDICTION_ERROR))
    _spread: UsualDeviation = field(default_factory=lambda: UsualDeviation(MAX_SPREAD))
    _was_usual: bool = True

    def judge(self, quality: RunQuality, *, passes_single: bool) -> bool:
        """Return whether a run went about as the last ones did, and count it as one of them.

        `passes_single`: so does a single one that differs. Other work disturbs runs now and then,
        and if the machine has changed, the next run shows it.
        """
        if quality.is_trial:
            return False
        is_usual = self._error.is_usual(quality.error) and self._spread.is_usual(quality.spread)
        self._error.add(quality.error)
        self._spread.add(quality.spread)
        is_single, self._was_usual = self._was_usual, is_usual
        return is_usual or (passes_single and is_single)
