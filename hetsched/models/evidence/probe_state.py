"""When a device without a share is probed: after 1, 2, 4, 8, 8, ... runs, or at once. Pure.

A device may have no share because its few runs were unlucky, or because it was slow for a while.
Without a share it is never measured, so it gets a small probe now and then. A probe that
contradicts the device's model is repeated at once, until a change of speed has been confirmed or
the model has learnt the new size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta

from hetsched.models.evidence.change_detector import RUNS_TO_CONFIRM
from hetsched.models.evidence.samples import MAX_SECONDS, MIN_SECONDS
from hetsched.units import NUMBER_LIMIT

MAX_INTERVAL = 8
"""Maximum runs from one probe to the next."""
CONTRADICTION_LOG = math.log(1.3)
"""Logarithm of measured over predicted time from which a probe contradicts the model."""
MAX_REPEATS = RUNS_TO_CONFIRM + 1
"""Repeats in a row of a probe that contradicts the model: one more than confirm a change of a
third or more. Then its next turn is awaited."""
MIN_OBSERVED_RUNS = 3
"""Runs of a device without which it is probed in every run: fewer may be bad luck."""

Count = Annotated[int, Meta(ge=0, le=NUMBER_LIMIT - 1)]


@dataclass(frozen=True)
class ProbeState:
    """A device's record in one kind of job. The limits hold for decoded ones.

    Attributes
    ----------
    idle_runs : int
        Runs without a share since its last one, or since its last probe with that one.
    probes : int
        Probes since its last share, without repeats.
    repeats : int
        Last probes in a row that contradicted the model.
    ratio : float
        Measured over predicted time of the last probe, if it contradicted the model.
    """

    idle_runs: Count = 0
    probes: Count = 0
    repeats: Count = 0
    ratio: Annotated[float, Meta(ge=MIN_SECONDS, le=MAX_SECONDS)] = 1.0

    @property
    def is_contradicted(self) -> bool:
        """Whether the last probe contradicted the model and is to be repeated."""
        return self.repeats > 0

    @property
    def is_due(self) -> bool:
        """Whether the next run should probe the device if it has no share."""
        return self.is_contradicted or self.idle_runs >= self.interval

    @property
    def interval(self) -> int:
        """Runs until the next probe: 1, 2, 4, 8, 8, ..."""
        return int(min(2 ** min(self.probes, MAX_INTERVAL), MAX_INTERVAL))

    def after_idle_run(self) -> ProbeState:
        """Return the state after a run in which the device had nothing to do."""
        return replace(self, idle_runs=self.idle_runs + 1)

    def after_probe(self, ratio: float) -> ProbeState:
        """Return the state after a probe that took `ratio` times as long as predicted, > 0."""
        is_repeat = self.is_contradicted
        probes = self.probes + (not is_repeat)
        is_contradiction = abs(math.log(ratio)) > CONTRADICTION_LOG
        if is_contradiction and self.repeats < MAX_REPEATS:
            return ProbeState(1, probes, self.repeats + 1, ratio)
        return ProbeState(1, probes)
