"""How far an iterative job is, and what it has measured; its epochs. Pure.

An epoch is the time in which the same devices compute iterations together.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from hetsched.explain.recorder import IterationRecorder, finite
from hetsched.explain.records import MoveKind, RowMove
from hetsched.job import IterationSeconds
from hetsched.partition import iterations
from hetsched.transport import device_messages

MAX_RATES = 64
"""Reports over which the rate is measured."""

# ---- what devices report


@dataclass(frozen=True)
class CompleteIteration:
    """An iteration that all devices of its epoch have reported, or several with the same rows."""

    iteration: int  # The last one
    rows: Mapping[str, int]  # Device -> its rows; `times`: mean seconds of its phases
    times: Mapping[str, IterationSeconds]
    residual: float  # After the last one; NaN: the workload has no such number
    count: int = 1

    @property
    def seconds(self) -> float:
        """Of one iteration from its start to its end: the longest time of a device."""
        return max((times.total for times in self.times.values()), default=0.0)


class IterationLog:
    """The iterations of one epoch, from the reports of its devices.

    All have records of the same iterations, but for the last one before the loss of a device.
    """

    def __init__(self, devices: Sequence[str], *, derives_waits: bool = False) -> None:
        self._records: dict[str, deque[device_messages.IterationRecord]] = {
            device: deque() for device in devices
        }
        self._derives_waits = derives_waits

    def add(self, device: str, done: device_messages.IterationsDone) -> list[CompleteIteration]:
        """Add a report; return the iterations that are complete now, in order."""
        self._records[device].extend(done.records)
        queues, complete = self._records.values(), []
        while all(queues) and len({records[0].last for records in queues}) == 1:
            complete.append(self._take())
        return complete

    def _take(self) -> CompleteIteration:
        """Remove the first record of each device and return them as one."""
        taken = {device: records.popleft() for device, records in self._records.items()}
        times = {d: record.seconds.times(1 / record.count) for d, record in taken.items()}
        if self._derives_waits:
            times = _with_waits(times)
        rows = {device: record.rows for device, record in taken.items()}
        first = next(iter(taken.values()))
        return CompleteIteration(first.last, rows, times, first.residual, first.count)


def _with_waits(times: Mapping[str, IterationSeconds]) -> dict[str, IterationSeconds]:
    """Return modelled times with the wait of each device for the slowest one."""
    longest = max(each.busy for each in times.values())
    return {
        device: IterationSeconds(t.compute, t.transfer, longest - t.busy, t.converge)
        for device, t in times.items()
    }


def bounds_of(rows: Sequence[int]) -> tuple[int, ...]:
    return (0, *accumulate(rows))


@dataclass
class IterationState:
    """The state of one iterative job."""

    devices: tuple[str, ...]  # All that the job may use; the index of each is its slot
    max_iterations: int
    balance: iterations.IterationBalance | None = None
    finished: int = -1  # The last complete iteration; -1: the start isn't complete
    ended: int | None = None  # The iteration after which the method has ended; None: it hasn't
    previous: tuple[int, ...] = ()  # Slots with partial results of iteration `finished`
    epochs: int = 0  # So far
    moves: int = 0  # How often rows moved between devices
    is_complete: bool = False  # The finish stages are complete, so the outputs are
    has_converged: bool = False
    residual: float = math.nan  # After the last iteration reported; NaN: unknown
    # From the first iteration to the end; modelled, if devices have a virtual clock
    seconds: float = 0.0
    reported: int = 0  # The last iteration that all devices have reported
    begun_at: float | None = None  # When the first attempt began to iterate, seconds
    # The order for the first device of the present epoch; None: it has been settled
    epoch: device_messages.Iterate | None = None
    proposed: tuple[int, ...] | None = None  # Bounds that haven't been adopted
    sums: dict[str, IterationSeconds] = field(default_factory=dict)  # Of all iterations, by device
    last: CompleteIteration | None = None
    continued_after: int = 0  # The iteration of the checkpoint that it was given
    restores: bool = False  # The next epoch begins with what devices saved of iteration `finished`
    history: IterationRecorder = field(init=False)
    _residuals: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=16))
    # (time, iteration) of the last reports
    _marks: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=MAX_RATES))
    _move: iterations.Move | None = None
    _present: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._present = set(self.devices)
        self.history = IterationRecorder(self.devices)

    @property
    def is_warming_up(self) -> bool:
        """Whether the first iteration is a round that will be repeated."""
        return self.balance is not None and self.balance.is_warming_up and self.finished <= 1

    def balance_with(self, balance: iterations.IterationBalance, devices: Collection[str]) -> None:
        """Use `balance`, of the first plan; `devices`: those that it hasn't lost.

        Later plans only add devices: what has been measured meanwhile is worth more.
        """
        if self.balance is None:
            self.balance = balance
            self._present = set(devices)

    # ---- epochs

    def next_epoch(
        self, attempt: int, usable: Collection[str], *, is_paced: bool
    ) -> device_messages.Iterate:
        """Return the order for the next epoch; none is running, and `usable` isn't empty.

        It has those of `usable` that have rows. Each has some, so that the order of partial
        results never depends on a split that the engine doesn't know yet.
        """
        rows = self._shares(usable)
        first, last = self.finished + 1, self.max_iterations
        if self.ended is not None:  # only the finish stages are left
            first, last = self.ended + 1, self.ended
        self.epochs += 1
        self.proposed = None
        self.epoch = device_messages.Iterate(
            attempt=attempt,
            epoch=self.epochs,
            rank=0,
            slots=tuple(self.devices.index(device) for device in rows),
            bounds=bounds_of(tuple(rows.values())),
            first=first,
            last=last,
            previous=self.previous if first else (),
            restores=self.restores,
            paced=is_paced,
        )
        return self.epoch

    def devices_of(self, epoch: device_messages.Iterate) -> tuple[str, ...]:
        """Return the devices of an epoch, in the order of their rows."""
        return tuple([self.devices[slot] for slot in epoch.slots])

    def complete(self, now: float) -> None:
        self.is_complete = True
        if not self.seconds and self.begun_at is not None:
            self.seconds = now - self.begun_at

    def settle(self, finished: int, ended: int | None, *, is_paused: bool = False) -> None:
        """Record how far the devices of the present epoch got; they have stopped.

        `is_paused`: all of them after the same iteration; otherwise some may have begun the next
        one.
        """
        assert self.epoch is not None, "settled twice"
        order, self.epoch = self.epoch, None
        self.restores = False
        self.ended = ended if ended is not None else self.ended
        if finished < order.first:
            return
        is_round = self.is_warming_up and finished == 1 and self.ended is None and is_paused
        if order.first == 0 or not is_round:
            self.previous = order.slots
        # The input of a round is in the other buffer, unless that of iteration 2 has been begun.
        self.finished = 0 if is_round else finished

    def go_back(self, iteration: int) -> None:
        """Record that work after `iteration` is lost; the next epoch begins with what was saved.

        The present epoch is settled. Below 0: nothing was saved.
        """
        self.history.go_back(iteration, self.finished - iteration)
        self.finished, self.reported = iteration, max(0, iteration)
        self.ended, self.previous = None, ()
        self.restores = iteration >= 0
        self._marks.clear()

    def _shares(self, usable: Collection[str]) -> dict[str, int]:
        """Return device -> rows at the beginning of an epoch, in the order of slots."""
        balance, present = self.balance, set(usable)
        assert balance is not None, "its first plan has one"
        come = sorted(present - self._present)
        gone = sorted(self._present.difference(present))
        for device in come:
            balance.restore(self.devices.index(device))
        for device in gone:
            balance.lose(self.devices.index(device))
        self._present = present
        shares = self.wanted_shares()
        changes = [f"without {', '.join(gone)}"] if gone else []
        changes += [f"with {', '.join(come)}"] if come else []
        kind: MoveKind = "lost" if gone else "joined" if come else "balance"
        self.announce(shares, " and ".join(changes), kind)
        return shares

    def wanted_shares(self) -> dict[str, int]:
        """Return the shares of the devices that shall have rows, in the order of slots."""
        assert self.balance is not None, "its first plan has one"
        wanted = zip(self.devices, self.balance.rows, strict=True)
        return {device: rows for device, rows in wanted if rows}

    def continue_after(self, iteration: int, residual: float | None) -> None:
        """Record that the job's arrays are as after `iteration`, from a checkpoint."""
        self.finished = self.reported = self.continued_after = iteration
        self.previous = ()  # its combined values are in the slot for these
        self.residual = math.nan if residual is None else residual
        self.history = IterationRecorder(self.devices, iteration + 1)

    # ---- reports

    def add(self, complete: CompleteIteration, now: float) -> iterations.TimedIteration:
        """Record an iteration; return it for the balance."""
        if self.last is not None and self.last.rows != complete.rows:
            self.moves += 1
        self.last = complete
        self.reported = complete.iteration
        self.residual = complete.residual
        self._residuals.append((complete.iteration, complete.residual))
        for device, times in complete.times.items():
            sums = self.sums.get(device, IterationSeconds())
            self.sums[device] = sums.plus(times.times(complete.count))
        if self._marks and self._marks[-1][0] == now:
            self._marks.pop()
        self._marks.append((now, complete.iteration))
        if self.epoch is not None and self.epoch.paced:
            self.seconds += complete.count * complete.seconds
        rows = tuple([complete.rows.get(device, 0) for device in self.devices])
        phases = tuple([complete.times.get(device) for device in self.devices])
        self.history.add(complete.iteration, rows, phases, complete.residual, complete.count)
        return iterations.TimedIteration(complete.iteration, rows, phases, complete.count)

    @property
    def per_second(self) -> float | None:
        """Iterations per second, over the last reports; None until two have come."""
        if len(self._marks) < 2:
            return None
        (start, first), (end, last) = self._marks[0], self._marks[-1]
        return (last - first) / (end - start)

    def residual_after(self, iteration: int) -> float:
        """Return the residual last reported up to `iteration`; NaN if none is known."""
        known = [residual for last, residual in self._residuals if last <= iteration]
        return known[-1] if known else math.nan

    def announce(
        self, shares: Mapping[str, int], reason: str = "", kind: MoveKind = "balance"
    ) -> None:
        """Record why devices get other rows: default, for the reason of the balance."""
        rows, move = tuple(shares.get(device, 0) for device in self.devices), self._move
        announced = RowMove(rows=rows, reason=reason, kind=kind)
        if not reason and move is not None:
            announced = RowMove(
                rows=rows,
                reason=move.reason,
                kind=kind,
                expected_before=finite(move.seconds_before),
                expected_after=finite(move.seconds_after),
                expected_cost=finite(move.cost),
            )
        self.history.announce(announced)

    def measured(self) -> Iterator[tuple[str, int, float, float | None]]:
        """Yield device, rows, median seconds, and these without copies; None: there were none."""
        measured = self.balance.measured() if self.balance is not None else ()
        for slot, rows, seconds, compute in measured:
            yield self.devices[slot], rows, seconds, compute

    def tell_balance(
        self, reported: Sequence[iterations.TimedIteration], remaining: int | None
    ) -> None:
        if self.balance is not None:
            self._move = self.balance.tell(reported, remaining) or self._move
