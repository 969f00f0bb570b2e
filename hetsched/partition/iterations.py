"""The balance of an iterative job: told the times of iterations, it says which rows to move.

The loops of Clarke (section 4), DFPA and NEC, and `auto`, on iterations that go on while it
decides: reports come in batches, some still with the split before, and rows that move cost time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from statistics import median, median_low
from typing import Any

from hetsched.errors import DataError, UsageError
from hetsched.explain.recorder import finite, received
from hetsched.explain.records import RowMove
from hetsched.job import BALANCE_METHODS, IterationSeconds
from hetsched.models import PiecewiseLinear
from hetsched.models.windows import DEPTH, MAX_SIZES
from hetsched.partition.adaptive import AdaptiveBalancer
from hetsched.partition.balancer import (
    IMBALANCE,
    Balancer,
    is_measured,
    split_with_unmeasured,
    spread_over,
)
from hetsched.partition.distribution import Distribution
from hetsched.partition.equal_times import geometric
from hetsched.partition.imbalance_factor import NodeModel
from hetsched.partition.phases import Phase
from hetsched.units import closest_hint

TOLERANCE = 0.05
IMBALANCE_TOLERANCE = 0.1
"""The papers give no figures; these are those of their simulated experiments."""
MAX_WARM_UP_ROUNDS = 6
"""The most points that DFPA needed for a device."""
DEVICES_PER_PAIR = 4
"""In simulated clusters (`simulate nec`) more pairs save no repartition, but move more rows."""
MIN_SECONDS = 1e-9
"""Shorter times can't be measured."""
MAX_MOVES = 8
"""Moves whose median cost counts, and splits that late reports may still be of."""


@dataclass(frozen=True)
class TimedIteration:
    """An iteration, or `count` of them with the same split, the last with the number `iteration`.

    `times`: means; None: the device took no part.
    """

    iteration: int
    rows: tuple[int, ...]
    times: Sequence[IterationSeconds | None]
    count: int = 1

    @property
    def busy(self) -> tuple[float, ...]:
        """Seconds of each device without waits."""
        return tuple(0.0 if time is None else time.busy for time in self.times)


class IterationBalance:
    """The split of an iterative job.

    Methods: `auto`: functional models and the rule of trials; `functional`: Clarke's loop on
    functional models; `constant`: shares in proportion to the last speeds, Clarke's baseline;
    `imbalance-factor`: NEC's trades by wait times; `none`: shares don't change.

    Shares are multiples of `granule` rows, except the last one. `capacities`: rows that fit in
    each device's memory: more are possible, but probably slow (`auto`). `models`: seconds of so
    many rows on each device, from earlier jobs: they give the first split, unless a `warm_up`
    does, rounds of the first iteration (DFPA). `absent`: devices that take no part before they are
    restored, as after `lose`. `seconds_per_row`: the least cost of moving a row. `rows`: of each
    device, as decided last.

    Raises UsageError for a malformed argument.
    """

    def __init__(
        self,
        rows: int,
        devices: int,
        method: str = "auto",
        *,
        granule: int = 1,
        capacities: Sequence[int | None] | None = None,
        models: Sequence[Any | None] | None = None,
        absent: Collection[int] = (),
        warm_up: bool = False,
        seconds_per_row: float = 0.0,
    ) -> None:
        if rows < 1 or devices < 1 or granule < 1:
            raise UsageError(f"balance: {rows} rows, {devices} devices, granule {granule}")
        if method not in BALANCE_METHODS:
            raise UsageError(
                f"balance: {method!r} is unknown{closest_hint(method, BALANCE_METHODS)}"
            )
        self._rows, self._granule = rows, granule
        self._units = -(-rows // granule)
        self._models = list(models or [None] * devices)
        self._moving_cost = _MovingCost(seconds_per_row)
        self._iterations = 0
        self._remaining: int | None = None
        self._lost = set(absent)
        tolerance = IMBALANCE_TOLERANCE if method == IMBALANCE else TOLERANCE
        self._balancer: Balancer | AdaptiveBalancer | None = None
        if method == "auto":
            limits = [None if rows is None else rows // granule for rows in capacities or ()]
            self._balancer = AdaptiveBalancer(
                self._units,
                limits or [None] * devices,
                self._moving_seconds,
                self._further_iterations,
                [None if m is None else _Rows(m, granule) for m in self._models],
            )
        elif method != "none":
            self._balancer = Balancer(
                self._units,
                devices,
                "geometric" if method == "functional" else method,
                tolerance,
                stop_when_seen=method != "constant",
                models=[_node(m, granule) for m in self._models] if method == IMBALANCE else None,
                migration_cost=self._moving_seconds,
                further_runs=self._further_iterations,
                pairs=max(1, devices // DEVICES_PER_PAIR),
            )
        self._warm_up = Balancer(self._units, devices, "dfpa", tolerance) if warm_up else None
        for device in absent:
            for balancer in self._balancers:
                balancer.lose(device)
        self._rounds = 0
        self._superseded: deque[tuple[int, ...]] = deque(maxlen=MAX_MOVES)
        self._last: TimedIteration | None = None
        self._evidence: list[dict[int, deque[tuple[float, float]]]] = [{} for _ in range(devices)]
        self.rows = self._to_rows(self._first_split().shares)

    @property
    def _balancers(self) -> list[Balancer | AdaptiveBalancer]:
        return [each for each in (self._warm_up, self._balancer) if each is not None]

    # ---- iterations

    @property
    def is_warming_up(self) -> bool:
        """Whether the next iteration will be repeated."""
        return self._warm_up is not None

    def tell(
        self, iterations: Iterable[TimedIteration], remaining: int | None = None
    ) -> RowMove | None:
        """Report iterations, in order; return a new split, or None to go on as decided before.

        Those with the same split count as one measurement. `remaining`: how many follow; None: as
        many as so far. Raises UsageError.
        """
        self._remaining = remaining
        is_judged = False
        for rows, group in groupby(iterations, key=lambda iteration: iteration.rows):
            is_late = rows != self.rows and rows in self._superseded
            self._report(list(group), is_judged=not (is_late or is_judged))
            is_judged |= not is_late
        if self._warm_up is None:
            return self._move(self._balancer.ask(), "imbalance") if self._balancer else None
        # Another round, or the first iteration if rounds have ended
        proposal, warm_up = self._warm_up.ask(), self._warm_up
        if warm_up.reason or self._rounds >= MAX_WARM_UP_ROUNDS:
            self._warm_up = None
            self._models = [
                _Rows(curve, 1 / self._granule) if is_measured(curve) else model
                for curve, model in zip(warm_up.models, self._models, strict=True)
            ]
        return self._move(proposal, "warm-up")

    def _report(self, group: Sequence[TimedIteration], *, is_judged: bool) -> None:
        rows, last = group[0].rows, self._last
        self._last = group[-1]
        self._iterations = max(self._iterations, self._last.iteration)
        before = last.rows if last is not None and last.rows != rows else None
        group = self._moving_cost.without_move(before, group)
        times = [_mean_phases(group, device) for device in range(len(rows))]
        if before is None:
            self._keep(rows, times)
        shares = self._to_shares(rows)
        balancer = self._warm_up or self._balancer
        if balancer is not None and is_judged:
            balancer.tell(times, shares)
        elif balancer is not None:
            balancer.learn(shares, times)
        if self._warm_up is not None:
            self._rounds += 1  # also one with another split than decided: rounds must end
            if self._balancer is not None:
                self._balancer.learn(shares, times)

    def _move(self, distribution: Distribution, reason: str) -> RowMove | None:
        """Adopt a split; return the move that it takes, if any."""
        before, rows = self.rows, self._to_rows(distribution.shares)
        if rows == before:
            return None
        if before not in self._superseded:
            self._superseded.append(before)
        self.rows = rows
        last = self._last
        return RowMove(
            rows=rows,
            reason=reason,
            expected_before=max(last.busy) if last is not None and last.rows == before else None,
            expected_after=finite(distribution.makespan),
            expected_cost=finite(self._moving_cost.seconds(before, rows)),
        )

    # ---- devices

    def lose(self, device: int) -> RowMove | None:
        self._lost.add(device)
        for balancer in self._balancers:
            balancer.lose(device)
        return self._new_devices("device lost")

    def restore(self, device: int) -> RowMove | None:
        """Let a device that was lost take part again, or for the first time."""
        self._lost.discard(device)
        for balancer in self._balancers:
            balancer.restore(device)
        return self._new_devices("device available")

    def _new_devices(self, reason: str) -> RowMove | None:
        self._superseded.clear()
        self._last = None
        return self._move(self._first_split(), reason)

    def _first_split(self) -> Distribution:
        balancer = self._warm_up or self._balancer
        knows = any(model is not None for model in self._models)
        if balancer is not None and (self._iterations or self._warm_up or not knows):
            return balancer.ask()
        present = [device for device in range(len(self._models)) if device not in self._lost]
        if not present:
            raise DataError(f"all {len(self._models)} devices are lost")
        models = [self._models[i] for i in present]
        part = split_with_unmeasured(
            geometric,
            [PiecewiseLinear() if m is None else _Rows(m, self._granule) for m in models],
            self._units,
            [None] * len(present),
        )
        return spread_over(part, present, len(self._models))

    # ---- what is known of the devices

    def _keep(self, rows: Sequence[int], times: Sequence[Mapping[Phase, float]]) -> None:
        for device, (count, phases) in enumerate(zip(rows, times, strict=True)):
            if count and device not in self._lost:
                copies = phases[Phase.TRANSFER]
                busy = phases[Phase.COMPUTE] + phases[Phase.CONVERGE] + copies
                sizes = self._evidence[device]
                seconds = sizes.pop(count, None) or deque(maxlen=DEPTH)
                seconds.append((busy, busy - copies))
                sizes[count] = seconds
                if len(sizes) > MAX_SIZES:
                    del sizes[next(iter(sizes))]

    def measured(self) -> Iterator[tuple[int, int, float, float | None]]:
        """Yield device, rows, median seconds, and these without copies; None: there were none."""
        for device, sizes in enumerate(self._evidence):
            for rows, seconds in sizes.items():
                busy, compute = map(median, zip(*seconds, strict=True))
                yield device, rows, busy, compute if compute < busy else None

    def _moving_seconds(self, old: tuple[int, ...], new: tuple[int, ...]) -> float:
        return self._moving_cost.seconds(self._to_rows(old), self._to_rows(new))

    def _further_iterations(self, _: int) -> float:
        return float(self._iterations if self._remaining is None else self._remaining)

    # ---- rows and the units in which a Balancer counts them, a granule each

    def _to_rows(self, shares: Sequence[int]) -> tuple[int, ...]:
        bounds = [min(self._granule * end, self._rows) for end in accumulate(shares, initial=0)]
        return tuple(stop - first for first, stop in pairwise(bounds))

    def _to_shares(self, rows: Sequence[int]) -> tuple[int, ...]:
        ends = accumulate(rows, initial=0)
        bounds = [self._units if e == self._rows else round(e / self._granule) for e in ends]
        return tuple(stop - first for first, stop in pairwise(bounds))


class _Rows:
    """A model of rows as one of units of `unit` rows."""

    def __init__(self, model: Any, unit: float) -> None:
        self._model = model
        self._unit = unit

    def time(self, x: Any, /) -> Any:
        return self._model.time(x * self._unit)

    def speed(self, x: Any, /) -> Any:
        return x / self.time(x)


def _node(model: Any | None, granule: int) -> NodeModel:
    """Return the compute and transfer times behind a DeviceModel as a history table."""
    total, compute = getattr(model, "total", None), getattr(model, "compute", None)
    rows = getattr(total, "points", ())
    if compute is None or not is_measured(compute):
        return NodeModel((units / granule, seconds, 0.0) for units, seconds in rows)
    computing = [min(float(compute.time(units)), seconds) for units, seconds in rows]
    return NodeModel(
        (units / granule, c, seconds - c)
        for (units, seconds), c in zip(rows, computing, strict=True)
    )


def _mean_phases(group: Sequence[TimedIteration], device: int) -> dict[Phase, float]:
    count = sum(each.count for each in group)
    present = [(times, each.count) for each in group if (times := each.times[device])]
    means = {
        phase: sum(n * getattr(times, phase.value) for times, n in present) / count
        for phase in Phase
    }
    means[Phase.COMPUTE] = max(means[Phase.COMPUTE], MIN_SECONDS)
    return means


class _MovingCost:
    """Seconds per row that a device gets, learnt from the first iteration with a new split.

    It pays for cold caches, memory of another NUMA node or copies to an accelerator; devices do so
    at the same time. `least`: whatever moves show, as noise may hide their cost.
    """

    def __init__(self, least: float) -> None:
        self._least = least
        self._observed: deque[float] = deque([least], maxlen=MAX_MOVES)
        # Rows gained, and seconds, of the last iteration if it was the first with its split
        self._first: tuple[tuple[int, ...], tuple[float, ...]] | None = None

    def seconds(self, before: Sequence[int], after: Sequence[int]) -> float:
        # One move may have been slow for another reason: two must show a cost.
        per_row = max(self._least, median_low(self._observed))
        return per_row * max(received(before, after), default=0)

    def without_move(
        self, before: Sequence[int] | None, group: Sequence[TimedIteration]
    ) -> Sequence[TimedIteration]:
        """Learn from iterations with one split; return those that show the devices' speeds.

        `before`: the split before the first of these, if it was another one.
        """
        pending, self._first = self._first, None
        first = group[0]
        if before is None:
            if pending is not None:
                self._observe(*pending, group)
            return group
        if first.count > 1:
            return group
        gained = received(before, first.rows)
        if len(group) > 1:
            self._observe(gained, first.busy, group[1:])
            return group[1:]
        self._first = gained, first.busy
        return group

    def _observe(
        self, gained: Sequence[int], first: Sequence[float], later: Sequence[TimedIteration]
    ) -> None:
        count = sum(each.count for each in later)
        means = [
            sum(each.count * each.busy[device] for each in later) / count
            for device in range(len(gained))
        ]
        extra = [
            max(0.0, a - b) / rows
            for rows, a, b in zip(gained, first, means, strict=True)
            if rows > 0
        ]
        if extra:
            self._observed.append(median(extra))
