"""The balancing loop, inverted: ask for a distribution, run it, report its times.

The loops of Clarke (sections 3, 4), DFPA, NEC and the engine all use it. It runs nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hetsched.errors import DataError, UsageError
from hetsched.partition.balancing.arguments import (
    check_callable,
    check_models,
    list_per_device,
    non_negative,
    positive_count,
)
from hetsched.partition.balancing.decision import Decision, Situation
from hetsched.partition.balancing.methods import make_method
from hetsched.partition.balancing.move_policy import FurtherRuns, MigrationCost, MovePolicy
from hetsched.partition.balancing.phase import DeviceTime, Reading, parse_readings
from hetsched.partition.balancing.run_history import Shares
from hetsched.partition.balancing.splitting import (
    Split,
    check_distribution,
    checked_split,
    is_measured,
    split_with_unmeasured,
)
from hetsched.partition.balancing.stopping import SETTLED_RUNS
from hetsched.partition.distribution import Distribution, Limits, check_request


class Balancer:
    """A run-by-run search for shares with which all devices finish together.

    >>> balancer = Balancer(300, 2)
    >>> while not balancer.reason:
    ...     first, second = balancer.ask().shares
    ...     balancer.tell([first / 1.0, second / 2.0])
    >>> balancer.ask().shares, balancer.reason
    ((100, 200), 'balanced')

    Parameters
    ----------
    load : int, units
    devices : int
    method : str
        "constant": shares in proportion to the last run's speeds (Clarke 3). "geometric",
        "smooth", "optimal": that partitioner on speed functions of size (Clarke 5 and 6).
        "dfpa": as geometric, for a benchmark kernel: no data move between runs.
        "imbalance-factor": units move from the device that waits least to the one that waits
        most (NEC).
    tolerance : float
        epsilon: the relative spread of times (of waits: the imbalance factor), and the relative
        gain, below which shares don't change.
    limits : sequence of int or None, units, optional
        The maximum for each device, also in the first run.
    stop_when_seen : bool
        Whether the loop ends when it returns to a measured distribution, and keeps the best.
        Otherwise only the models and the last run count.
    models : sequence of SpeedFunction, optional
        Initial models; those with `observe` learn from each run.
    split : callable (models, load, limits) -> Distribution, optional
        Replaces the method's partitioner; for the imbalance factor, its trades.
    migration_cost : callable (old shares, new shares) -> seconds, optional
        Shares change only if the gain over the further runs exceeds this cost.
    further_runs : callable (runs so far) -> further runs, optional
        Without it as many as so far, so that waiting and moving together cost at most twice the
        best choice in hindsight.
    pairs : int
        Trades in one run (imbalance factor).
    groups : sequence of sequences of int, or of labels, optional
        Devices trade within their group first, then groups trade with each other. Overlapping
        groups are neighbourhoods, which trade only internally (imbalance factor).
    seed : int
        Of the random choice between devices with equal waits (imbalance factor).

    Attributes
    ----------
    iterations : int
        Runs reported.

    Raises
    ------
    UsageError
        A malformed argument.
    DataError
        The limits leave no room for the load.
    """

    def __init__(  # noqa: PLR0913 - the public interface
        self,
        load: int,
        devices: int,
        method: str = "geometric",
        tolerance: float = 0.1,
        limits: Limits | None = None,
        stop_when_seen: bool = True,
        *,
        models: Sequence[Any] | None = None,
        split: Split | None = None,
        migration_cost: MigrationCost | None = None,
        further_runs: FurtherRuns | None = None,
        pairs: int = 1,
        groups: Sequence[Any] | None = None,
        seed: int = 0,
    ) -> None:
        self._load = positive_count("load", load)
        devices = positive_count("devices", devices)
        self._tolerance = non_negative("tolerance", tolerance)
        check_callable("split", split)
        check_callable("migration_cost", migration_cost)
        check_callable("further_runs", further_runs)
        pairs = positive_count("pairs", pairs)
        self._method = make_method(
            method, self._load, devices, self._tolerance, split, pairs, groups, seed
        )
        self._limits = (
            [None] * devices if limits is None else list_per_device("limits", limits, devices)
        )
        if models is None:
            self._learners = [self._method.new_model() for _ in range(devices)]
        else:
            self._learners = [
                self._method.learner_of(model)
                for model in list_per_device("models", models, devices)
            ]
        self._measures_all = models is None
        # A caller with both models and a split chooses the shares of unmeasured devices.
        self._split_takes_unmeasured = models is not None and split is not None
        policy = MovePolicy(
            self._tolerance,
            1 if models is None else SETTLED_RUNS,
            stop_when_seen,
            migration_cost if method != "dfpa" else None,
            further_runs,
        )
        self._decision = Decision(self._method, self._tolerance, policy)
        check_request(self.models, self._load, self._limits)
        check_models(self.models)
        self._lost_devices: set[int] = set()
        self._joined_meanwhile = 0
        self._asked_shares: Shares | None = None
        self._is_running = False
        self.iterations = 0

    @property
    def models(self) -> tuple[Any, ...]:
        """One per device, including lost devices."""
        return tuple(learner.curve for learner in self._learners)

    @property
    def balanced(self) -> bool:
        """Whether the distribution that `ask` returns was measured and is balanced.

        Balanced: the devices' times differ by at most the tolerance, or the slowest device's time
        for one unit. Devices at their limit may finish early.
        """
        self._settle()
        return self._decision.balanced

    @property
    def reason(self) -> str:
        """Why the search has ended; empty while it continues."""
        self._settle()
        return self._decision.reason

    def ask(self) -> Distribution:
        """Return the distribution of the next run; the same until that run is reported.

        Returns
        -------
        Distribution
            With `makespan` and `spread` as measured, or as predicted by the models; NaN while a
            device is unmeasured.

        Raises
        ------
        DataError
            Devices were lost, and the limits of the others sum to less than the load.
        UsageError
            A model, `split` or `migration_cost` returned an invalid result.
        """
        self._settle()
        if self._decision.next is None:
            self.propose(self._partition())
        distribution = self._decision.next
        assert distribution is not None, "just proposed"
        self._asked_shares = distribution.shares
        self._is_running = True
        return distribution

    def tell(self, times: Sequence[DeviceTime], shares: Sequence[int] | None = None) -> None:
        """Report the times of a run, with the shares that `ask` returned.

        Parameters
        ----------
        times : sequence of float, Mapping[Phase, float] or None, seconds
            One per device. None: the device is lost and gets no further share. Times of devices
            without a share are ignored.
        shares : sequence of int, units, optional
            Of the run, if others than `ask` returned.

        Raises
        ------
        UsageError
            `ask` wasn't called; not one entry per device; an entry is not a finite time, or is 0
            for a device with a share. Nothing is recorded then.
        """
        if not self._is_running or self._asked_shares is None:
            raise UsageError("tell: no run to report; call ask() first")
        shares = self._asked_shares if shares is None else tuple(shares)
        readings = parse_readings(times, shares, self._joined_meanwhile)
        self._is_running = False
        has_newcomers, self._joined_meanwhile = self._joined_meanwhile > 0, 0
        self.iterations += 1
        lost = {i for i, reading in enumerate(readings) if reading is None} - self._lost_devices
        for i, reading in enumerate(readings):
            if reading is not None and shares[i]:
                self._learners[i].learn(shares[i], reading)
        if lost or has_newcomers:
            self._lost_devices |= lost
            self._decision.reset(self.iterations)
        else:
            busy = [reading or Reading(0.0) for reading in readings]
            self._decision.record(shares, busy, self._situation())

    def learn(self, shares: Sequence[int], times: Sequence[DeviceTime]) -> None:
        """Learn from a run with other shares than `ask` returned; it isn't judged.

        Raises
        ------
        UsageError
            As `tell`.
        """
        readings = parse_readings(times, shares)
        for learner, share, reading in zip(self._learners, shares, readings, strict=True):
            if reading is not None and share:
                learner.learn(share, reading)

    def lose(self, device: int) -> None:
        """Give `device` no further share, as if its next time had been None."""
        self._lost_devices.add(device)
        self._start_over()

    def restore(self, device: int) -> None:
        """Give a lost device shares again, by what was learnt of it; its next runs tell more."""
        self._lost_devices.discard(device)
        self._start_over()

    def _start_over(self) -> None:
        self._is_running = False
        self._decision.reset(self.iterations)

    def join(self) -> int:
        """Add a device, unmeasured and without a limit, from the next run on.

        Returns
        -------
        int
            Its index in `ask().shares` and `tell`. A run asked for earlier may be reported without
            an entry for it.
        """
        self._learners.append(self._method.new_model())
        self._method.add_device(len(self._learners) - 1)
        self._limits.append(None)
        if self._asked_shares is not None and self._is_running:
            self._asked_shares = (*self._asked_shares, 0)
            self._joined_meanwhile += 1
        self._decision.reset(self.iterations)
        return len(self._learners) - 1

    def reconsider(self) -> None:
        """Consult the models again before the next run, even if the last one was balanced.

        For models that also learn from other runs.
        """
        self._decision.reconsider(self._is_running)

    @property
    def needs_proposal(self) -> bool:
        """Whether the next `ask` would call the partitioner; `propose` can supply its result.

        Always false for trades (imbalance factor).
        """
        return self._decision.next is None or self._decision.is_open

    def propose(self, distribution: Distribution) -> None:
        """Decide between the present shares and `distribution` by the current models.

        For callers that compute the distribution themselves instead of passing `split`. The first
        distribution for a set of devices is always accepted.

        Parameters
        ----------
        distribution : Distribution
            `makespan` NaN: its gain is unknown, and it is tried.

        Raises
        ------
        UsageError
            No proposal is needed; the shares don't sum to the load or exceed a limit;
            `migration_cost` returned an invalid result.
        """
        check_distribution(distribution, self._load, self._limits)
        if not self.needs_proposal:
            raise UsageError("propose: the next shares are settled; see needs_proposal")
        self._decision.propose(distribution, self._situation())

    def _situation(self) -> Situation:
        return Situation(self.models, self._limits, self.iterations, self._lacks_measurements())

    def _lacks_measurements(self) -> bool:
        """Return whether a device is still to be measured; models of a caller never are."""
        return self._measures_all and any(
            limit != 0 and index not in self._lost_devices and not is_measured(learner.curve)
            for index, (learner, limit) in enumerate(
                zip(self._learners, self._limits, strict=True)
            )
        )

    def _settle(self) -> None:
        """Choose the next shares. Called lazily by `ask`, since a split may be slow."""
        if not self._decision.is_open:
            return
        # A device without a unit can't trade.
        can_trade = self._load >= len(self._learners) and not self._lacks_measurements()
        if not (can_trade and self._decision.trade(self._situation())):
            self.propose(self._partition())

    def _partition(self) -> Distribution:
        """Split the load over the devices that aren't lost."""
        present = [i for i in range(len(self._learners)) if i not in self._lost_devices]
        if not present:
            raise DataError(f"all {len(self._learners)} devices are lost")
        models = [self._learners[i].curve for i in present]
        limits = [self._limits[i] for i in present]
        check_request(models, self._load, limits)
        call = checked_split if self._split_takes_unmeasured else split_with_unmeasured
        distribution = call(self._method.split, models, self._load, limits)
        if not self._lost_devices:
            return distribution
        shares = [0] * len(self._learners)
        for i, share in zip(present, distribution.shares, strict=True):
            shares[i] = share
        return Distribution(
            tuple(shares), distribution.makespan, distribution.spread, distribution.reason
        )
