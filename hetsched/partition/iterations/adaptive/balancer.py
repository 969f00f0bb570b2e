"""The balancer of `auto`: functional models, weighing what a trial may gain against what it costs.

Clarke's loop tries the split that its models predict to be best. Where a device would get more
rows than it ever had, or a cliff lies between two measured sizes, that is a guess, and a wrong one
costs as much as the cliff is deep. So the way there is divided into steps of the least expected
cost (`trial_path`), and a step that isn't worth its risk isn't made.

A device whose times at the same size change is first watched for some readings; if the change is
confirmed, everything known of the device is rescaled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hetsched.errors import DataError
from hetsched.models import PiecewiseLinear
from hetsched.partition.balancing.imbalance_factor.trades import total_and_waits
from hetsched.partition.balancing.move_policy import FurtherRuns, MigrationCost
from hetsched.partition.balancing.phase import DeviceTime, Reading, parse_readings
from hetsched.partition.balancing.run_history import Shares
from hetsched.partition.balancing.splitting import split_with_unmeasured
from hetsched.partition.balancing.stopping import (
    BALANCED,
    NO_GAIN,
    NOT_WORTH_MOVING,
    relative_spread,
)
from hetsched.partition.distribution import Distribution, Limits, predict
from hetsched.partition.geometric import geometric
from hetsched.partition.iterations.adaptive.beyond_capacity import trusted_limits
from hetsched.partition.iterations.adaptive.device_evidence import DeviceEvidence
from hetsched.partition.iterations.adaptive.doubts import PARTS, trial_point
from hetsched.partition.iterations.adaptive.trial_budget import TrialBudget
from hetsched.partition.iterations.adaptive.trial_path import TrialPoint, next_step
from hetsched.partition.iterations.adaptive.unlike_devices import (
    first_limits,
    halfway,
    unlike_devices,
)
from hetsched.partition.iterations.iteration_totals import IterationTotals
from hetsched.partition.iterations.row_units import received

MIN_GAIN = 0.01
"""Part of an iteration below which a gain never moves rows. Arbitrary."""
UNCONFIRMED_GAIN = 0.2
"""Part of an iteration that a gain must exceed while no split was measured twice, so that nobody
knows the noise, and no cliff, which is far above noise. Arbitrary."""
MAX_COUNT = 4
"""Measurements beyond which the error of a mean doesn't become smaller: disturbances last."""
GAIN_ERRORS = 2.5
"""Standard errors of an iteration's time that a gain must exceed."""
MEDIAN_ERROR = 1.25
"""Standard error of a median over that of a mean, for normal noise."""
MAX_WATCHED_READINGS = 4
"""Readings for which a suspected change of speed keeps rows where they are."""
MAX_PAUSE = 8
"""Readings until shares that stay are considered again; fewer after a move or a surprise."""
SURPRISE = 0.1
"""Relative difference of a time from the model that is one."""
ROW_WEIGHT = 0.03
"""Part of the remaining time that moving all rows is worth, besides its measured cost, where it
isn't certain that they stay. Arbitrary."""
WATCHING = "watching a device that may have changed its speed"


class AdaptiveBalancer:
    """A Balancer for iterations.

    Parameters
    ----------
    load : int, units
    devices : int
    tolerance : float
        Relative difference of the devices' times that is called balanced.
    limits : sequence of int or None, units
    migration_cost, further_runs : callable
        As in `Balancer`.
    capacities : sequence of int or None, units
        What fits in each device's memory.
    kinds : sequence of str
        Devices of the same kind presumably have the same speed.

    Attributes
    ----------
    reason : str
        Why shares stay; empty after a move.
    """

    def __init__(
        self,
        load: int,
        devices: int,
        tolerance: float,
        limits: Limits,
        migration_cost: MigrationCost,
        further_runs: FurtherRuns,
        capacities: Limits,
        kinds: Sequence[str],
    ) -> None:
        self._load = load
        self._tolerance = tolerance
        self._limits = list(limits)
        self._migration_cost = migration_cost
        self._further_runs = further_runs
        self._evidence = [DeviceEvidence(capacities[i]) for i in range(devices)]
        self._kinds = list(kinds)
        self._lost: set[int] = set()
        self._present: Shares | None = None
        """The last measured shares."""
        self._totals = IterationTotals()
        self._next: Distribution | None = None
        self._is_open = True
        self._watched = 0
        self._pause = 0
        """Readings between two considerations; 0: after each."""
        self._pause_left = 0
        self._trials = TrialBudget()
        self._is_cliff_measured = False
        self.reason = ""

    @property
    def models(self) -> tuple[Any, ...]:
        """A curve for each device."""
        return tuple(
            evidence.curve if evidence.is_measured else PiecewiseLinear()
            for evidence in self._evidence
        )

    def ask(self) -> Distribution:
        """Return the split of the next iteration.

        Raises
        ------
        DataError
            All devices are lost, or the limits of the others leave no room for the load.
        """
        if self._next is None:
            self._next = self._first_partition()
        elif self._is_open:
            self._next = self._choose()
        self._is_open = False
        return self._next

    def propose(self, distribution: Distribution) -> None:
        """Begin with this split."""
        if self._next is None:
            self._next, self._is_open = distribution, False

    def tell(self, times: Sequence[DeviceTime], shares: Sequence[int] | None = None) -> None:
        """Report the times of a run with these shares; default: those that `ask` returned.

        Raises
        ------
        UsageError
            As `Balancer.tell`.
        """
        if shares is None:
            shares = self.ask().shares
        is_same = self._present == tuple(shares)
        is_surprised = self._learn(shares, times)
        self._present = tuple(shares)
        if not is_same or is_surprised or self._watched:
            self._pause = 0
        self._pause_left -= 1
        self._is_open = self._pause == 0 or self._pause_left <= 0

    def learn(self, shares: Sequence[int], times: Sequence[DeviceTime]) -> None:
        """Learn from a run with other shares than `ask` returned."""
        self._learn(shares, times)

    def _learn(self, shares: Sequence[int], times: Sequence[DeviceTime]) -> bool:
        """Learn from a run; return whether a time is a surprise."""
        readings = parse_readings(times, shares)
        self._trials.on_reading()
        self._totals.add(
            tuple(shares),
            total_and_waits([reading or Reading(0.0) for reading in readings], shares)[0],
        )
        is_surprised = False
        for evidence, share, reading in zip(self._evidence, shares, readings, strict=True):
            if reading is not None and share:
                expected = float(evidence.curve.time(share)) if evidence.is_measured else 0.0
                evidence.add(share, reading.busy)
                if evidence.change is not None:
                    self._trials.renew()
                is_surprised |= abs(reading.busy - expected) > SURPRISE * expected
        return is_surprised

    def lose(self, device: int) -> None:
        """Give `device` no further share."""
        self._lost.add(device)
        self._next = self._present = None
        self._trials.renew()

    def restore(self, device: int) -> None:
        """Give a lost device shares again."""
        self._lost.discard(device)
        self._next = self._present = None
        self._trials.renew()

    # ---- the choice

    def _devices(self) -> list[int]:
        present = [i for i in range(len(self._evidence)) if i not in self._lost]
        if not present:
            raise DataError(f"all {len(self._evidence)} devices are lost")
        return present

    def _partition(self, limits: Limits | None = None, models: Any = None) -> Distribution:
        """Split the load over the devices that aren't lost."""
        devices = self._devices()
        models, limits = models or self.models, limits or self._limits
        part = split_with_unmeasured(
            geometric, [models[i] for i in devices], self._load, [limits[i] for i in devices]
        )
        shares = [0] * len(self._evidence)
        for i, share in zip(devices, part.shares, strict=True):
            shares[i] = share
        return Distribution(tuple(shares), part.makespan, part.spread, part.reason)

    def _first_partition(self) -> Distribution:
        """Split the load without an iteration to compare with: within the capacities if it fits.

        After a loss or a return, too, since times of other splits are known by then.
        """
        room: Sequence[int] = [
            min(self._load if bound is None else bound for bound in (evidence.capacity, limit))
            for evidence, limit in zip(self._evidence, self._limits, strict=True)
        ]
        if not any(self._evidence[i].is_measured for i in self._devices()):
            room = first_limits(self._devices(), self._unlike(), self._load, room)
        fits = sum(room[i] for i in self._devices()) >= self._load
        return self._partition(room if fits else None)

    def _unlike(self) -> frozenset[int]:
        """Return devices unlike the others, whose memory is unknown."""
        capacities = [evidence.capacity for evidence in self._evidence]
        return unlike_devices(self._devices(), self._kinds, capacities)

    def _not_far_below(self, plain: Distribution, present: Shares) -> Distribution:
        """Return `plain`, with more units for an unlike device that was slow with its only share.

        That is its present one, so there are units enough: these devices get fewer than they have.
        """
        raised: dict[int, int] = {}
        for i in self._unlike():
            share = halfway(present[i], max(1, plain.shares[i]))
            is_only_share = self._evidence[i].points[:, 0].tolist() == [present[i]]
            if is_only_share and plain.shares[i] < share < present[i]:
                raised[i] = share
        unraised = [i for i in self._devices() if i not in raised]
        if not raised or not unraised:
            return plain
        rest = geometric(
            [self.models[i] for i in unraised],
            self._load - sum(raised.values()),
            [self._limits[i] for i in unraised],
        )
        shares = [raised.get(i, 0) for i in range(len(self._evidence))]
        for i, share in zip(unraised, rest.shares, strict=True):
            shares[i] = share
        return self._predicted(tuple(shares))

    def _choose(self) -> Distribution:
        """Choose between the present shares and others."""
        present = self._present
        assert present is not None, "told before"
        if any(not self._evidence[i].is_measured for i in self._devices()):
            return self._moved(self._first_partition())
        now = self._predicted(present)
        if self._is_watching(present):
            return self._stay(now, WATCHING)
        points = self._way(present)
        if all(point.distribution.shares == present for point in points):
            return self._stay(now, BALANCED)
        further = self._further_runs(0)
        cost = self._trial_cost(further * now.makespan) if len(points) > 1 else self._cost
        step = next_step(now, points, further, cost, self._trials.remaining)
        goes_to = step.point.distribution
        gain = now.makespan - min(step.end.distribution.makespan, self._untrusted_makespan())
        if gain <= self._least_gain(present) or goes_to.shares == present:
            spread = relative_spread(present, self._times(present), self._limits)
            return self._stay(now, BALANCED if spread <= self._tolerance else NO_GAIN)
        if step.value <= 0:
            return self._stay(now, NOT_WORTH_MOVING)
        if self._is_cliff_measured and step.point is not points[0]:
            self._trials.take()
        return self._moved(goes_to)

    def _untrusted_makespan(self) -> float:
        """Return what further steps promise where trust in lines limits the next one; inf: not."""
        plain, limits = self._partition(), self._trusted_limits()
        is_limited = any(
            limit is not None and share > limit
            for share, limit in zip(plain.shares, limits, strict=True)
        )
        return plain.makespan if is_limited else math.inf

    def _stay(self, now: Distribution, reason: str) -> Distribution:
        self.reason = reason
        self._pause = min(MAX_PAUSE, 2 * self._pause or 1)
        self._pause_left = self._pause
        return now

    def _moved(self, distribution: Distribution) -> Distribution:
        self.reason = ""
        self._pause = 0
        return distribution

    def _is_watching(self, present: Shares) -> bool:
        """Return whether a device may be changing its speed; not for long."""
        suspected = any(
            share and evidence.is_suspected(share)
            for evidence, share in zip(self._evidence, present, strict=True)
        )
        self._watched = self._watched + 1 if suspected else 0
        return 0 < self._watched <= MAX_WATCHED_READINGS

    def _times(self, shares: Shares) -> list[float]:
        return [
            float(evidence.curve.time(share)) if share else 0.0
            for evidence, share in zip(self._evidence, shares, strict=True)
        ]

    def _predicted(self, shares: Shares) -> Distribution:
        return predict(self.models, shares)

    def _way(self, present: Shares) -> list[TrialPoint]:
        """Return the way to the split that the models predict to be best.

        The first point is below all doubtful sizes. A single point: nothing is in doubt.
        """
        trusted = self._trusted_limits()
        plain = self._partition(trusted)
        raised = self._not_far_below(plain, present)
        if raised is not plain:
            return [TrialPoint(raised)]
        doubts = {
            i: doubt
            for i, share in enumerate(plain.shares)
            if share and (doubt := self._evidence[i].doubt_at(share)) is not None
        }
        self._is_cliff_measured = any(doubt.is_measured for doubt in doubts.values())
        if not doubts:
            return [TrialPoint(plain)]
        models = [
            evidence.curve_below(doubts[i].below) if i in doubts else model
            for i, (evidence, model) in enumerate(zip(self._evidence, self.models, strict=True))
        ]
        goals = self._partition(trusted, models).shares
        points: list[TrialPoint] = []
        for part in PARTS:
            limits = [self._load if limit is None else limit for limit in trusted]
            for i, doubt in doubts.items():
                limits[i] = min(limits[i], doubt.size_at(part, goals[i]))
            if sum(limits[i] for i in self._devices()) < self._load:
                continue
            point = trial_point(self._partition(limits, models), doubts)
            if points and point.survival == points[-1].survival:
                points.pop()
            if point.survival > 0:
                points.append(point)
        return points or [TrialPoint(plain)]

    def _trusted_limits(self) -> Limits:
        trusted = [evidence.trusted for evidence in self._evidence]
        return trusted_limits(self._devices(), self._limits, trusted, self._load)

    def _trial_cost(self, remaining_seconds: float) -> MigrationCost:
        """Return the cost of moving rows that may have to move back, seconds."""

        def cost(old: Shares, new: Shares) -> float:
            part = sum(received(old, new)) / self._load
            return self._cost(old, new) + ROW_WEIGHT * part * remaining_seconds

        return cost

    def _cost(self, old: Shares, new: Shares) -> float:
        return self._migration_cost(old, new) if old != new else 0.0

    def _least_gain(self, shares: Shares) -> float:
        """Return the gain, seconds per iteration, that isn't just noise."""
        total = self._totals.typical(shares)
        count = min(self._totals.count(shares), MAX_COUNT)
        noise = self._totals.noise
        if noise is None:
            return (MIN_GAIN if self._is_cliff_measured else UNCONFIRMED_GAIN) * total
        error = max(
            [noise * total]
            + [
                evidence.noise * seconds
                for evidence, seconds in zip(self._evidence, self._times(shares), strict=True)
            ]
        )
        return max(MIN_GAIN * total, GAIN_ERRORS * MEDIAN_ERROR * error / math.sqrt(count))
