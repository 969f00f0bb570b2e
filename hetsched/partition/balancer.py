"""The balancing loop, inverted: ask for a distribution, run it, report its times.

The loops of Clarke (sections 3, 4), DFPA and NEC all use it. It runs nothing itself.

The papers stop at (t_max - t_min) / t_min <= epsilon (Clarke 3, DFPA 2), which limits, few units
or a cliff in the speed can make unreachable. So a loop also stops when the models promise no
further gain, when it returns to a measured distribution, and after a maximum number of runs; it
then keeps the best measured distribution.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from hetsched.errors import DataError, UsageError
from hetsched.job import IterationSeconds
from hetsched.models import Akima, Constant, PiecewiseLinear, SpeedFunction
from hetsched.models.curves import EQUAL
from hetsched.models.validation import require_count, require_non_negative
from hetsched.models.windows import DEPTH, Windows
from hetsched.partition.discrete import optimal
from hetsched.partition.distribution import Distribution, Limits, Shares, check_request, predict
from hetsched.partition.equal_times import constant, geometric
from hetsched.partition.imbalance_factor import NodeModel, Trading
from hetsched.partition.phases import DeviceTime, Phase, parse_readings
from hetsched.partition.root_finding import smooth
from hetsched.units import closest_hint

__all__ = ["Balancer", "Phase"]

Split = Callable[[Sequence[Any], int, Sequence[int | None]], Distribution]
"""(models, load, limits) -> Distribution."""
MigrationCost = Callable[[Shares, Shares], float]
"""(old shares, new shares) -> seconds that moving the data takes."""
FurtherRuns = Callable[[int], float]
"""Runs so far -> runs that are expected to follow."""

IMBALANCE = "imbalance-factor"
METHODS: dict[str, tuple[Callable[[int, Windows], Any], Split]] = {
    "constant": (lambda _, __: Constant(), constant),
    "geometric": (lambda _, windows: PiecewiseLinear(windows), geometric),
    "smooth": (lambda load, windows: Akima(windows, load=load), smooth),
    "optimal": (lambda _, windows: PiecewiseLinear(windows, shape="dips"), optimal),
    "dfpa": (lambda _, windows: PiecewiseLinear(windows), geometric),
    IMBALANCE: (lambda _, __: NodeModel(), geometric),
}
"""Method -> ((load, empty windows) -> a model without observations, partitioner)."""

BALANCED = "balanced"
NO_GAIN = "no further gain"
SEEN = "no further gain: seen before"
NOT_WORTH_MOVING = "not worth moving"
BUDGET = "budget"
COMMUNICATION_BOUND = "communication-bound"

CLIFF = 1.2
"""Ratio of the speeds of two measured sizes above which an interpolated time is a guess: far above
noise."""
MIN_GUESSED_GAIN = 0.1
"""Part of the tolerance that a guessed gain must exceed to be tried: near a cliff, interpolation
underestimates the possible gain."""
SETTLED_RUNS, MIN_SETTLED = 10, 0.25
"""Runs over which the sum that is deferred grows to the tolerance, from a part of it, with models
that know more than these runs: early moves cost little."""
SLACK = 0.2
"""Part of the tolerance by which a small gain, forgone in each run, counts less: a sum of them
beyond the tolerance is worth a move (Page, Biometrika 41, 1954)."""
UNBALANCED_RUNS = 2
"""Consecutive unbalanced runs after which trades (NEC) reconsider a balanced distribution."""
MAX_SEARCH_RUNS = 30
"""Runs of one search per device; then the best is kept."""


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
    ) -> None:
        self._load = require_count("load", load, 1)
        devices = require_count("devices", devices, 1)
        self._tolerance = require_non_negative("tolerance", tolerance)
        for name, value in (("split", split), ("migration_cost", migration_cost)):
            if value is not None and not callable(value):
                raise UsageError(f"{name}: {value!r} must be callable")
        trading = Trading(devices, self._tolerance, require_count("pairs", pairs, 1), groups)
        if method not in METHODS:
            raise UsageError(f"method: {method!r} is unknown{closest_hint(method, [*METHODS])}")
        self._make_model, partitioner = METHODS[method]
        self._split = split or partitioner
        self._trading = trading if method == IMBALANCE else None
        self._trades = method == IMBALANCE and split is None
        self._limits = _per_device(
            "limits", [None] * devices if limits is None else limits, devices
        )
        self._measures_all = models is None
        self._models = (
            [self._new_model() for _ in range(devices)]
            if models is None
            else _per_device("models", models, devices)
        )
        check_request(self._models, self._load, self._limits)
        for index, model in enumerate(self._models):
            if not all(callable(getattr(model, name, None)) for name in ("time", "speed")):
                raise UsageError(f"models: {model!r}, of device {index}, has no .time and .speed")
        # A caller with both models and a split chooses the shares of unmeasured devices.
        self._split_takes_unmeasured = models is not None and split is not None
        self._stop_when_seen = stop_when_seen
        self._migration_cost = migration_cost if method != "dfpa" else None
        self._further_runs = further_runs or float
        self._lost: set[int] = set()
        self._joined_meanwhile = 0
        self._asked: Shares | None = None
        self._is_running = False
        self.iterations = 0
        self._start_over()

    def _start_over(self) -> None:
        """Forget all runs, but not what models have learnt: the set of devices has changed."""
        self._runs: dict[Shares, deque[tuple[float, ...]]] = {}
        self._last: tuple[Shares, Sequence[IterationSeconds]] | None = None
        self._search_runs = 0
        self._deferred_gain = 0.0
        self._unbalanced_runs = 0
        self._is_measuring = False
        self._next: Distribution | None = None
        self._is_open = False  # Whether the next shares are to be decided despite a `_next`
        self._balanced = False
        self._reason = ""

    @property
    def models(self) -> tuple[Any, ...]:
        """One per device, including lost devices."""
        return tuple(self._models)

    @property
    def balanced(self) -> bool:
        """Whether the distribution that `ask` returns was measured and is balanced.

        Balanced: the devices' times differ by at most the tolerance, or the slowest device's time
        for one unit. Devices at their limit may finish early.
        """
        self._settle()
        return self._balanced

    @property
    def reason(self) -> str:
        """Why the search has ended; empty while it continues."""
        self._settle()
        return self._reason

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
        if self._next is None:
            self._next = self._partition()
        self._asked = self._next.shares
        self._is_running = True
        return self._next

    def tell(self, times: Sequence[DeviceTime], shares: Sequence[int] | None = None) -> None:
        """Report the times of a run.

        Parameters
        ----------
        times : sequence of float, Mapping[Phase, float] or None, seconds
            One per device. None: the device is lost and gets no further share. Times of devices
            without a share are ignored.
        shares : sequence of int, units, optional
            Of the run. Default: those that `ask` returned.

        Raises
        ------
        UsageError
            `ask` wasn't called; not one entry per device; an entry is not a finite time, or is 0
            for a device with a share. Nothing is recorded then.
        """
        if shares is None:
            if not self._is_running or self._asked is None:
                raise UsageError("tell: no run to report; call ask() first")
            shares = self._asked
        joined = self._joined_meanwhile
        if joined and hasattr(times, "__len__") and len(times) == len(shares) - joined:
            times = [*times, *[0.0] * joined]  # of a run that began without the newcomers
        shares = tuple(shares)
        readings = self.learn(shares, times)
        self._is_running = False
        self._joined_meanwhile = 0
        self.iterations += 1
        lost = {i for i, reading in enumerate(readings) if reading is None} - self._lost
        self._lost |= lost
        if lost or joined:
            self._start_over()
        else:
            self._judge(shares, [reading or IterationSeconds() for reading in readings])

    def learn(self, shares: Shares, times: Sequence[DeviceTime]) -> list[IterationSeconds | None]:
        """Learn from a run, perhaps with other shares than `ask` returned; it isn't judged."""
        readings = parse_readings(times, shares)
        for i, (share, reading) in enumerate(zip(shares, readings, strict=True)):
            if reading is None or not share:
                continue
            if isinstance(model := self._models[i], NodeModel):
                model.observe(share, reading.compute + reading.converge, reading.transfer)
            elif hasattr(model, "observe"):
                model.observe(share, reading.busy)
        return readings

    def _new_model(self) -> Any:
        # Exact until times prove noisy: the papers' experiments rely on cliffs between two
        # neighbours, for which smoothing mistakes an outlier.
        return self._make_model(self._load, Windows(corrects="noise"))

    def lose(self, device: int) -> None:
        """Give `device` no further share, as if its next time had been None."""
        self._lost.add(device)
        self._is_running = False
        self._start_over()

    def restore(self, device: int) -> None:
        self._lost.discard(device)
        self._is_running = False
        self._start_over()

    def join(self) -> int:
        """Add a device, unmeasured and without a limit, from the next run on; return its index.

        A run asked for earlier may be reported without an entry for it.
        """
        device = len(self._models)
        self._models.append(self._new_model())
        self._limits.append(None)
        if self._trading is not None:
            self._trading.add_device(device)
        if self._asked is not None and self._is_running:
            self._asked = (*self._asked, 0)
            self._joined_meanwhile += 1
        self._start_over()
        return device

    # ---- the search

    def _judge(self, shares: Shares, readings: Sequence[IterationSeconds]) -> None:
        """Keep the shares of a run if they are balanced; else the next ones are to be decided."""
        self._last = shares, readings
        runs = self._runs.pop(shares, None) or deque(maxlen=DEPTH)
        runs.append(tuple(reading.busy for reading in readings))
        self._runs[shares] = runs
        if len(self._runs) > 256:
            del self._runs[next(iter(self._runs))]
        imbalance, reason, patience = self._spread(shares, runs[-1]), BALANCED, 1
        if self._trading is not None:
            patience = UNBALANCED_RUNS
            imbalance, is_bound = self._trading.imbalance(shares, readings, self._limits)
            reason = COMMUNICATION_BOUND if is_bound else BALANCED
        was_measuring, self._is_measuring = self._is_measuring, self._lacks_measurements()
        if was_measuring or self._is_measuring:
            self._is_open = True
        elif imbalance <= self._tolerance and not self._leaves_devices_out(shares):
            self._unbalanced_runs = 0
            self._stay(shares, reason)
        else:
            self._unbalanced_runs += 1
            self._is_open = not self._balanced or self._unbalanced_runs >= patience

    def _settle(self) -> None:
        """Decide on the next shares if they are open; only when asked, as a split may be slow."""
        if not self._is_open:
            return
        assert self._last is not None, "a run comes before each decision"
        shares, readings = self._last
        traded = None
        # A device without a unit can't trade.
        can_trade = self._load >= len(self._models) and not self._is_measuring
        if self._trading is not None and self._trades and can_trade:
            traded = self._trading.trade(shares, readings, self._models, self._limits)
        if traded is None:
            proposal = self._partition()
            seconds = self._seconds(shares)
            gain = seconds - proposal.makespan
            reason = self._reason_against(shares, proposal.shares, gain / seconds)
        else:
            new_shares, gain = traded
            proposal = predict(self._models, new_shares)
            reason = NO_GAIN if new_shares == shares else ""
        reason = reason or self._reason_to_stop(shares, proposal.shares, gain)
        self._is_open = False
        if reason:
            self._stay(shares if self._reason else self._best(shares), reason)
        else:
            self._search_runs += 1
            self._deferred_gain = 0.0
            self._next, self._balanced, self._reason = proposal, False, ""

    def _reason_against(self, present: Shares, proposed: Shares, gain: float) -> str:
        """Return why the relative `gain` is too small to try `proposed`; empty: try it."""
        if proposed == present or gain <= MIN_GUESSED_GAIN * self._tolerance:
            return NO_GAIN
        # An unknown gain (NaN) is no reason to stay: a device was never measured.
        if not gain <= self._tolerance or self._is_guess(proposed):
            return ""
        limit = self._tolerance
        if not self._measures_all:
            limit *= max(MIN_SETTLED, min(1.0, self.iterations / SETTLED_RUNS))
        self._deferred_gain += max(0.0, gain - SLACK * limit)
        return NO_GAIN if self._deferred_gain <= limit else ""

    def _is_guess(self, shares: Shares) -> bool:
        """Return whether a share lies between measured sizes with too different speeds."""
        for model, share in zip(self._models, shares, strict=True):
            points = getattr(model, "points", ())
            above = next((j for j, (size, _) in enumerate(points) if size >= share), 0)
            if share and above and points[above][0] != share:
                (small, t), (large, u) = points[above - 1], points[above]
                if not 1 / CLIFF <= small / t * u / large <= CLIFF:
                    return True
        return False

    def _reason_to_stop(self, present: Shares, proposed: Shares, gain: float) -> str:
        """Return why not to move to `proposed`, which gains `gain` seconds a run; empty: move."""
        if self._stop_when_seen and proposed in self._runs:
            return SEEN
        if self._search_runs >= MAX_SEARCH_RUNS * len(present):
            return BUDGET
        pays = math.isnan(gain) or self._pays(present, proposed, gain)
        return "" if pays else NOT_WORTH_MOVING

    def _pays(self, old: Shares, new: Shares, gain: float) -> bool:
        if self._migration_cost is None or old == new:
            return True
        cost = require_non_negative("migration_cost", self._migration_cost(old, new), " s")
        return cost == 0 or gain * self._further_runs(self.iterations) > cost

    def _stay(self, shares: Shares, reason: str) -> None:
        if reason != BUDGET:
            self._search_runs = 0
        seconds = [median(times) for times in zip(*self._runs[shares], strict=True)]
        spread = self._spread(shares, seconds)
        self._next = Distribution(shares, self._makespan(shares), spread, reason)
        busy = [(share, time) for share, time in zip(shares, seconds, strict=True) if share]
        unit = max(time / share for share, time in busy)  # moving it can't equalise less
        excess = max(time for _, time in busy) * spread / (1 + spread)
        self._balanced = (
            reason in (BALANCED, COMMUNICATION_BOUND)
            or spread <= self._tolerance
            or excess <= unit * (1 + EQUAL)
        )
        self._reason = reason

    # ---- measured distributions

    def _makespan(self, shares: Shares) -> float:
        return median(max(times) for times in self._runs[shares])

    def _seconds(self, shares: Shares) -> float:
        """Return the seconds of measured `shares`, by their models if all are measured.

        The maximum of measured times over devices is biased upwards by noise.
        """
        used = [model for model, share in zip(self._models, shares, strict=True) if share]
        if all(map(is_measured, used)):
            return predict(self._models, shares).makespan
        return self._makespan(shares)

    def _best(self, present: Shares) -> Shares:
        """Return the fastest measured distribution if moving back to it pays, else `present`."""
        if not self._stop_when_seen:
            return present
        fastest = min(self._runs, key=self._makespan)
        # A device may have become slower since.
        seconds = max(self._makespan(fastest), self._seconds(fastest))
        gain = self._seconds(present) - seconds
        return fastest if gain >= 0 and self._pays(present, fastest, gain) else present

    def _leaves_devices_out(self, shares: Shares) -> bool:
        """Return whether a device has no share: the others may end together, but far too late."""
        return any(
            not share and limit != 0 and i not in self._lost
            for i, (share, limit) in enumerate(zip(shares, self._limits, strict=True))
        )

    def _spread(self, shares: Shares, seconds: Sequence[float]) -> float:
        """Return (max - min) / min of the times of devices with a share.

        One at its limit can't take more, so it never counts as too early.
        """
        busy = [i for i, share in enumerate(shares) if share]
        free = [
            seconds[i] for i in busy if (limit := self._limits[i]) is None or shares[i] < limit
        ]
        return max(0.0, max(seconds[i] for i in busy) / min(free) - 1) if free else 0.0

    # ---- partitions

    def _lacks_measurements(self) -> bool:
        """Return whether a device is still to be measured; models of a caller never are."""
        return self._measures_all and any(
            limit != 0 and i not in self._lost and not is_measured(model)
            for i, (model, limit) in enumerate(zip(self._models, self._limits, strict=True))
        )

    def _partition(self) -> Distribution:
        present = [i for i in range(len(self._models)) if i not in self._lost]
        if not present:
            raise DataError(f"all {len(self._models)} devices are lost")
        models = [self._models[i] for i in present]
        limits = [self._limits[i] for i in present]
        check_request(models, self._load, limits)
        call = _checked_split if self._split_takes_unmeasured else split_with_unmeasured
        part = call(self._split, models, self._load, limits)
        return spread_over(part, present, len(self._models))


def spread_over(part: Distribution, present: Sequence[int], devices: int) -> Distribution:
    shares = [0] * devices
    for i, share in zip(present, part.shares, strict=True):
        shares[i] = share
    return Distribution(tuple(shares), part.makespan, part.spread, part.reason)


def split_with_unmeasured(
    split: Split, models: Sequence[Any], load: int, limits: Limits
) -> Distribution:
    """Call `split` for the measured devices; the others, which come first, have equal shares."""
    measured = [i for i, model in enumerate(models) if is_measured(model)]
    if len(measured) == len(models):
        return _checked_split(split, models, load, limits)
    order = [i for i in range(len(models)) if i not in measured] + measured
    equal = constant([Constant(1.0)] * len(order), load, [limits[i] for i in order]).shares
    shares = [share for _, share in sorted(zip(order, equal, strict=True))]
    if measured:
        part = sum(shares[i] for i in measured)
        distribution = _checked_split(
            split, [models[i] for i in measured], part, [limits[i] for i in measured]
        )
        for i, share in zip(measured, distribution.shares, strict=True):
            shares[i] = share
    return Distribution(tuple(shares), math.nan, math.nan, "devices to be measured first")


def is_measured(model: SpeedFunction) -> bool:
    try:
        model.time(1.0)
    except UsageError:
        return False
    return True


def _checked_split(split: Split, models: Sequence[Any], load: int, limits: Limits) -> Distribution:
    """Call `split`. Raises UsageError unless it returns shares of the load within the limits."""
    distribution = split(models, load, limits)
    if not isinstance(distribution, Distribution):
        raise UsageError(f"split: returned {distribution!r}, it must be a Distribution")
    shares = distribution.shares
    if len(shares) != len(limits) or sum(shares) != load:
        raise UsageError(
            f"split: shares {shares} must sum to {load} units on {len(limits)} devices"
        )
    for share, limit in zip(shares, limits, strict=True):
        if share < 0 or (limit is not None and share > limit):
            raise UsageError(f"split: a share of {share} units, the device takes 0 to {limit}")
    return distribution


def _per_device(name: str, values: Sequence[Any], devices: int) -> list[Any]:
    if not hasattr(values, "__len__") or len(values) != devices:
        raise UsageError(f"{name}: {values!r} must be a sequence of {devices}, one per device")
    return list(values)
