"""How far an iterative job is, and what it has measured; its epochs. Pure.

An epoch is the time in which the same devices compute iterations together.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from msgspec.structs import replace

from hetsched.explain.recorder import IterationRecorder
from hetsched.explain.records import MoveKind, RowMove
from hetsched.job import IterationSeconds
from hetsched.partition import iterations
from hetsched.partition.iterations import TimedIteration
from hetsched.transport import device_messages

MAX_RATES = 64
"""Reports over which the rate is measured."""


def bounds_of(rows: Sequence[int]) -> tuple[int, ...]:
    return (0, *accumulate(rows))


@dataclass
class IterationState:
    devices: tuple[str, ...]  # All that the job may use; the index of each is its slot
    max_iterations: int
    balance: iterations.IterationBalance | None = None
    hold_every: int = 0  # Iterations after which the job is held; 0: never
    held_after: int = 0  # The iteration after which it was, last
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
    begun_at: float | None = None  # When the first attempt began to iterate, seconds
    # The order for the first device of the present epoch; None: it has been settled
    epoch: device_messages.Iterate | None = None
    proposed: tuple[int, ...] | None = None  # Bounds that haven't been adopted
    sums: dict[str, IterationSeconds] = field(default_factory=dict)  # Of all iterations, by device
    reported: int = 0  # The last iteration that all devices have reported
    last: TimedIteration | None = None
    continued_after: int = 0  # The iteration of the checkpoint that it was given
    restores: bool = False  # The next epoch begins with what devices saved of iteration `finished`
    history: IterationRecorder = field(init=False)
    # Reports of each device of the epoch that others haven't made yet
    _records: dict[str, deque[device_messages.IterationRecord]] = field(default_factory=dict)
    _residuals: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=16))
    # (time, iteration) of the last reports
    _marks: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=MAX_RATES))
    _move: RowMove | None = None
    _present: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._present = set(self.devices)
        self.history = IterationRecorder(self.devices)

    @property
    def is_warming_up(self) -> bool:
        """Whether the first iteration is a round that will be repeated."""
        return self.balance is not None and self.balance.is_warming_up and self.finished <= 1

    @property
    def is_hold_due(self) -> bool:
        every, done = self.hold_every, self.finished
        return every > 0 and done % every == 0 and self.held_after < done < self.max_iterations

    def balance_with(self, balance: iterations.IterationBalance, devices: Collection[str]) -> None:
        """Use `balance`, of the first plan, with those devices that it hasn't lost."""
        if self.balance is None:
            self.balance = balance
            self._present = set(devices)

    def next_epoch(
        self, attempt: int, usable: Collection[str], *, is_paced: bool
    ) -> device_messages.Iterate:
        """Return the order for the next epoch; none is running, and `usable` isn't empty.

        It has those of `usable` that have rows. Each has some, so that the order of partial
        results never depends on a split that the engine doesn't know yet.
        """
        rows = self._shares(usable)
        self._records = {device: deque() for device in rows}
        first, last = self.finished + 1, self.max_iterations
        if self.ended is not None:  # only the finish stages are left
            first, last = self.ended + 1, self.ended
        hold = self.hold_every and (max(0, self.finished) // self.hold_every + 1) * self.hold_every
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
            hold=hold if hold < last else 0,
            previous=self.previous if first else (),
            restores=self.restores,
            paced=is_paced,
        )
        return self.epoch

    def devices_of(self, epoch: device_messages.Iterate) -> tuple[str, ...]:
        return tuple([self.devices[slot] for slot in epoch.slots])

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
        """Record that work after `iteration`, which was saved (below 0: not), is lost."""
        self.history.go_back(iteration, self.finished - iteration)
        self.finished, self.reported = iteration, max(0, iteration)
        self.ended, self.previous = None, ()
        self.restores = iteration >= 0
        self._marks.clear()

    def _shares(self, usable: Collection[str]) -> dict[str, int]:
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
        assert self.balance is not None, "its first plan has one"
        wanted = zip(self.devices, self.balance.rows, strict=True)
        return {device: rows for device, rows in wanted if rows}

    def continue_after(self, iteration: int, residual: float | None) -> None:
        self.finished = self.reported = self.continued_after = iteration
        self.previous = ()  # its combined values are in the slot for these
        self.residual = math.nan if residual is None else residual
        self.history = IterationRecorder(self.devices, iteration + 1)

    def report(
        self, device: str, done: device_messages.IterationsDone, now: float
    ) -> list[TimedIteration]:
        """Add a device's report; return the iterations that all have reported now, in order."""
        self._records[device].extend(done.records)
        queues, complete = self._records.values(), []
        while all(queues) and len({records[0].last for records in queues}) == 1:
            complete.append(self._complete(now))
        return complete

    def _complete(self, now: float) -> TimedIteration:
        """Record the first iteration that all devices have reported, and return it."""
        taken = {device: records.popleft() for device, records in self._records.items()}
        times = {d: record.seconds.times(1 / record.count) for d, record in taken.items()}
        first, is_paced = next(iter(taken.values())), self.epoch is not None and self.epoch.paced
        if is_paced:  # modelled times are without the wait for the slowest device
            longest = max(each.busy for each in times.values())
            times = {d: replace(each, wait=longest - each.busy) for d, each in times.items()}
        for device, mean in times.items():
            sums = self.sums.get(device, IterationSeconds())
            self.sums[device] = sums.plus(mean.times(first.count))
        iteration = TimedIteration(
            first.last,
            tuple([taken[device].rows if device in taken else 0 for device in self.devices]),
            tuple([times.get(device) for device in self.devices]),
            first.count,
        )
        if self.last is not None and self.last.rows != iteration.rows:
            self.moves += 1
        self.last, self.reported, self.residual = iteration, first.last, first.residual
        self._residuals.append((first.last, first.residual))
        if self._marks and self._marks[-1][0] == now:
            self._marks.pop()
        self._marks.append((now, first.last))
        if is_paced:
            self.seconds += first.count * self.last_seconds
        self.history.add(first.last, iteration.rows, iteration.times, first.residual, first.count)
        return iteration

    @property
    def rows(self) -> dict[str, int]:
        """Device -> its rows in the last iteration; only devices with some."""
        rows = self.last.rows if self.last is not None else ()
        return {device: count for device, count in zip(self.devices, rows, strict=False) if count}

    @property
    def last_seconds(self) -> float:
        """Of the last iteration from its start to its end: the longest time of a device."""
        times = self.last.times if self.last is not None else ()
        return max((each.total for each in times if each is not None), default=0.0)

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
        rows, move = tuple(shares.get(device, 0) for device in self.devices), self._move
        announced = RowMove(rows=rows, reason=reason, kind=kind)
        if not reason and move is not None:
            announced = replace(move, rows=rows, kind=kind)
        self.history.announce(announced)

    def measured(self) -> Iterator[tuple[str, int, float, float | None]]:
        """Yield device, rows, median seconds, and these without copies; None: there were none."""
        measured = self.balance.measured() if self.balance is not None else ()
        for slot, rows, seconds, compute in measured:
            yield self.devices[slot], rows, seconds, compute

    def tell_balance(self, reported: Sequence[TimedIteration], remaining: int | None) -> None:
        if self.balance is not None:
            self._move = self.balance.tell(reported, remaining) or self._move
