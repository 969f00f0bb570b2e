"""The balance of an iterative job: told the times of iterations, it says which rows to move.

The loops of Clarke (section 4), DFPA and NEC, by a `Balancer`, on iterations that go on while it
decides: reports come in batches, some still with the split before, and rows that move cost time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import Any

from hetsched.errors import UsageError
from hetsched.models import PiecewiseLinear
from hetsched.partition.balancing.balancer import Balancer
from hetsched.partition.balancing.imbalance_factor.node_model import NodeModel
from hetsched.partition.balancing.phase import Phase
from hetsched.partition.balancing.splitting import split_with_unmeasured
from hetsched.partition.distribution import Distribution
from hetsched.partition.geometric import geometric
from hetsched.partition.iterations.fixed_split import FixedSplit
from hetsched.partition.iterations.history_table import HistoryEntry, HistoryTable
from hetsched.partition.iterations.methods import (
    IMBALANCE,
    KnownDevices,
    check_method,
    new_balancer,
)
from hetsched.partition.iterations.moving_cost import MovingCost
from hetsched.partition.iterations.readings import ReadingBuffer
from hetsched.partition.iterations.records import Move, TimedIteration
from hetsched.partition.iterations.row_units import RowUnits, received

TOLERANCE = 0.05
IMBALANCE_TOLERANCE = 0.1
"""The papers give no figures; these are those of their simulated experiments."""
MAX_WARM_UP_ROUNDS = 6
"""The most points that DFPA needed for a device."""
DEVICES_PER_PAIR = 4
"""In simulated clusters (`simulate nec`) more pairs save no repartition, but move more rows."""
MAX_SUPERSEDED = 8
"""Splits that late reports may still be of."""
MIN_SECONDS = 1e-9
"""Shorter times can't be measured."""


class IterationBalance:
    """The split of an iterative job.

    Parameters
    ----------
    rows : int
    devices : int
        In the order of their rows.
    method : str
        One of `BALANCE_METHODS`.
    granule : int, rows
        Shares are multiples of it, except the last one.
    tolerance : float, optional
        The relative difference of the devices' times, or the imbalance factor, that needs no other
        split. Default: 0.05, or 0.1 for the imbalance factor.
    limits : sequence of int or None, rows, optional
        The maximum for each device.
    capacities : sequence of int or None, rows, optional
        What fits in each device's memory: more rows are possible, but probably slow (`auto`).
    kinds : sequence of str, optional
        Equal for devices that presumably have the same speed (`auto`). Default: all are equal.
    models : sequence of SpeedFunction or None, optional
        Seconds of so many rows on each device, from earlier jobs: they give the first split,
        unless a warm-up does.
    absent : collection of int
        Devices that take no part before they are restored, as after `lose`.
    warm_up : bool
        Whether rounds of the first iteration find the first split (DFPA).
    pairs : int, optional
        Trades at a time (imbalance factor). Default: a quarter of the devices.
    history : HistoryTable, optional
        Of earlier jobs (imbalance factor). Iterations are added.
    names : sequence of str, optional
        Of the devices, in the history table.
    seconds_per_row : float
        The least cost of moving a row.
    is_exact : bool
        Times are modelled. Otherwise `auto` ignores the first report and waits for two more.

    Attributes
    ----------
    rows : tuple of int
        Of each device, as decided last.
    moves : int
        Changes of the split.

    Raises
    ------
    UsageError
        A malformed argument.
    DataError
        The limits leave no room for the rows.
    """

    def __init__(  # noqa: PLR0913 - the public interface
        self,
        rows: int,
        devices: int,
        method: str = "auto",
        *,
        granule: int = 1,
        tolerance: float | None = None,
        limits: Sequence[int | None] | None = None,
        capacities: Sequence[int | None] | None = None,
        kinds: Sequence[str] | None = None,
        models: Sequence[Any | None] | None = None,
        absent: Collection[int] = (),
        warm_up: bool = False,
        pairs: int | None = None,
        history: HistoryTable | None = None,
        names: Sequence[str] | None = None,
        seconds_per_row: float = 0.0,
        is_exact: bool = True,
    ) -> None:
        if rows < 1 or devices < 1 or granule < 1:
            raise UsageError(f"balance: {rows} rows, {devices} devices, granule {granule}")
        self.method = check_method(method)
        self._units = RowUnits(rows, granule)
        self._names = tuple(names or map(str, range(devices)))
        self._history = HistoryTable() if history is None else history
        self._limits = self._whole_units(limits, devices)
        initial = [self._in_units(model) for model in models or [None] * devices]
        self._cost = MovingCost(seconds_per_row)
        self._iterations = 0
        self._remaining: int | None = None
        if tolerance is None:
            tolerance = IMBALANCE_TOLERANCE if method == IMBALANCE else TOLERANCE
        nodes = [self._node(name) for name in self._names]
        fitting = self._whole_units(capacities, devices)
        self._balancer = new_balancer(
            method, self._units.count, tolerance,
            KnownDevices(self._limits, fitting, kinds or [""] * devices, initial, nodes),
            pairs=max(1, devices // DEVICES_PER_PAIR) if pairs is None else pairs,
            migration_cost=self._moving_seconds, further_runs=self._further_iterations,
        )  # fmt: skip
        self._warm_up = (
            Balancer(self._units.count, devices, "dfpa", tolerance, self._limits)
            if warm_up
            else None
        )
        for device in absent:
            self._balancer.lose(device)
            if self._warm_up is not None:
                self._warm_up.lose(device)
        if any(initial) and not warm_up and not isinstance(self._balancer, FixedSplit):
            self._balancer.propose(self._first_split(initial, absent))
        self._rounds = 0
        self._superseded: deque[tuple[int, ...]] = deque(maxlen=MAX_SUPERSEDED)
        self._last: TimedIteration | None = None
        self._buffer = ReadingBuffer(is_exact=is_exact)
        self._is_awaiting = True
        """Whether the split in `rows` hasn't been reported."""
        self.moves = 0
        self.rows = self._units.to_rows((self._warm_up or self._balancer).ask().shares)

    # ---- iterations

    @property
    def is_warming_up(self) -> bool:
        """Whether the next iteration is a round that will be repeated."""
        return self._warm_up is not None

    @property
    def reason(self) -> str:
        """Why rows stay where they are; empty while the search continues."""
        return "" if self._warm_up else self._balancer.reason

    @property
    def moving_cost(self) -> MovingCost:
        """What moving rows has cost."""
        return self._cost

    def tell(
        self, iterations: Iterable[TimedIteration], remaining: int | None = None
    ) -> Move | None:
        """Report iterations; return a new split, or None to go on as decided before.

        Parameters
        ----------
        iterations : iterable of TimedIteration
            In their order. Those with the same split count as one measurement.
        remaining : int, optional
            Iterations that follow. None: unknown, presumed to be as many as so far.

        Raises
        ------
        UsageError
            A time isn't finite, or is negative.
        """
        self._remaining = remaining
        for _, group in groupby(iterations, key=lambda iteration: iteration.rows):
            self._tell_group(list(group))
        return self._decide("imbalance")

    def _tell_group(self, group: Sequence[TimedIteration]) -> None:
        """Report consecutive iterations with the same split."""
        rows, last = group[0].rows, self._last
        self._last = group[-1]
        self._iterations = max(self._iterations, self._last.iteration)
        is_changed = last is not None and last.rows != rows
        group, moving = self._cost.exclude(last.rows if last and is_changed else None, group)
        self._keep(group)
        if self.method == "auto" and self._warm_up is None:
            group = self._buffer.add(group)
        if not group:
            return
        times = [_mean_phases(group, device, moving[device]) for device in range(len(rows))]
        shares = self._units.to_shares(rows)
        balancer = self._warm_up or self._balancer
        if not self._is_awaiting or (rows != self.rows and rows in self._superseded):
            balancer.learn(shares, times)
        else:
            balancer.tell(times, shares)
            self._is_awaiting = False
        if self._warm_up is not None:
            self._rounds += 1  # also one with another split than decided: rounds must end
            self._balancer.learn(shares, times)

    def _keep(self, group: Sequence[TimedIteration]) -> None:
        """Add the last of these iterations to the history table."""
        entry = group[-1]
        for name, rows, times in zip(self._names, entry.rows, entry.times, strict=True):
            if times is not None:
                compute = times.compute + times.converge
                self._history.add(
                    HistoryEntry(name, entry.iteration, rows, compute, times.transfer)
                )

    def _decide(self, reason: str) -> Move | None:
        """Return the Balancer's new split, if it has one."""
        if self._warm_up is not None:
            return self._next_round(self._warm_up)
        return self._move(self._balancer.ask(), reason)

    def _next_round(self, warm_up: Balancer) -> Move | None:
        """Return the split of the next round, or of the first iteration if rounds have ended."""
        proposal = warm_up.ask()
        if not warm_up.reason and self._rounds < MAX_WARM_UP_ROUNDS:
            return self._move(proposal, "warm-up")
        self._warm_up = None
        if isinstance(self._balancer, FixedSplit):
            self._balancer.adopt(proposal, warm_up.models)
        else:
            self._balancer.propose(proposal)
        return self._move(self._balancer.ask(), "warm-up")

    def _move(self, distribution: Distribution, reason: str) -> Move | None:
        """Adopt a split; return the move that it takes, if any."""
        self._is_awaiting = True
        before, rows = self.rows, self._units.to_rows(distribution.shares)
        if rows == before:
            return None
        if before not in self._superseded:
            self._superseded.append(before)
        self.rows = rows
        self.moves += 1
        measured = self._last is not None and self._last.rows == before
        return Move(
            iteration=self._iterations,
            before=before,
            rows=rows,
            moved=sum(received(before, rows)),
            reason=reason,
            seconds_before=max(self._last.busy) if self._last and measured else math.nan,
            seconds_after=distribution.makespan,
            cost=self._cost.seconds(before, rows),
            remaining=self._remaining,
        )

    # ---- devices

    def lose(self, device: int) -> Move | None:
        """Take a device out; return the split of the others."""
        return self._change_devices(device, "device lost", is_present=False)

    def restore(self, device: int) -> Move | None:
        """Let a device that was lost take part again, or for the first time."""
        return self._change_devices(device, "device available", is_present=True)

    def _change_devices(self, device: int, reason: str, *, is_present: bool) -> Move | None:
        for balancer in (self._warm_up, self._balancer):
            if balancer is not None:
                (balancer.restore if is_present else balancer.lose)(device)
        self._superseded.clear()
        self._last = None
        return self._decide(reason)

    def history(self) -> HistoryTable:
        """Return the history table, of earlier jobs and of this one."""
        return self._history

    # ---- what the Balancer asks

    def _moving_seconds(self, old: tuple[int, ...], new: tuple[int, ...]) -> float:
        return self._cost.seconds(self._units.to_rows(old), self._units.to_rows(new))

    def _further_iterations(self, _: int) -> float:
        return float(self._iterations if self._remaining is None else self._remaining)

    # ---- what earlier jobs have learnt

    def _whole_units(self, rows: Sequence[int | None] | None, devices: int) -> list[int | None]:
        unit = self._units.unit
        return [None if count is None else count // unit for count in rows or [None] * devices]

    def _in_units(self, model: Any | None) -> Any | None:
        return None if model is None else _UnitCurve(model, self._units.unit)

    def _node(self, name: str) -> NodeModel:
        entries = self._history.of(name)
        return NodeModel((e.rows / self._units.unit, e.compute, e.transfer) for e in entries)

    def _first_split(self, models: Sequence[Any | None], absent: Collection[int]) -> Distribution:
        present = [device for device in range(len(models)) if device not in absent]
        part = split_with_unmeasured(
            geometric,
            [PiecewiseLinear() if models[i] is None else models[i] for i in present],
            self._units.count,
            [self._limits[device] for device in present],
        )
        shares = [0] * len(models)
        for device, share in zip(present, part.shares, strict=True):
            shares[device] = share
        return Distribution(tuple(shares), part.makespan, part.spread, part.reason)


class _UnitCurve:
    """A model of rows as one of units."""

    def __init__(self, model: Any, unit: int) -> None:
        self._model = model
        self._unit = unit

    def time(self, x: Any, /) -> Any:
        """Return the seconds of `x` units."""
        return self._model.time(x * self._unit)

    def speed(self, x: Any, /) -> Any:
        """Return units per second at `x` > 0 units."""
        return x / self.time(x)


def _mean_phases(
    group: Sequence[TimedIteration], device: int, excluded: float
) -> dict[Phase, float]:
    """Return a device's mean seconds of each phase; 0 if it took no part."""
    count = sum(each.count for each in group)
    sums = dict.fromkeys(Phase, 0.0)
    for each in group:
        times = each.times[device]
        if times is not None:
            sums[Phase.COMPUTE] += each.count * times.compute
            sums[Phase.TRANSFER] += each.count * times.transfer
            sums[Phase.WAIT] += each.count * times.wait
            sums[Phase.CONVERGE] += each.count * times.converge
    means = {phase: seconds / count for phase, seconds in sums.items()}
    means[Phase.COMPUTE] = max(means[Phase.COMPUTE] - excluded, MIN_SECONDS)
    return means
