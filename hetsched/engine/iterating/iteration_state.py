"""How far an iterative job is, and what it has measured; outlives attempts and epochs. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hetsched.engine.iterating.checkpointing import CheckpointSchedule
from hetsched.engine.iterating.epoch import Epoch, bounds_of, first_iteration, shares_of
from hetsched.engine.iterating.iteration_log import CompleteIteration, IterationRate, PhaseSums
from hetsched.engine.iterating.row_evidence import RowEvidence
from hetsched.explain.iterations.recorder import DecidedMove, IterationRecorder
from hetsched.explain.iterations.records import MoveKind
from hetsched.partition.iterations import IterationBalance, Move, TimedIteration


@dataclass
class IterationState:
    """The state of one iterative job.

    Attributes
    ----------
    devices : tuple of str
        All that the job may use; the index of each is its slot.
    finished : int
        The last complete iteration; -1: the start isn't complete.
    ended : int or None
        The iteration after which the method has ended; None: it hasn't.
    previous : tuple of int
        Slots with partial results of iteration `finished`.
    epochs, moves : int
        Epochs so far, and how often rows moved between devices.
    is_complete : bool
        The finish stages are complete, so the outputs are.
    has_converged : bool
    residual : float
        After the last iteration reported; NaN: unknown.
    seconds : float
        From the first iteration to the end; modelled, if devices have a virtual clock.
    """

    devices: tuple[str, ...]
    load: int
    granule: int
    max_iterations: int
    balance: IterationBalance | None = None
    finished: int = -1
    ended: int | None = None
    previous: tuple[int, ...] = ()
    epochs: int = 0
    moves: int = 0
    is_complete: bool = False
    has_converged: bool = False
    residual: float = math.nan
    seconds: float = 0.0
    reported: int = 0
    """The last iteration that all devices have reported."""
    begun_at: float | None = None
    """When the first attempt began to iterate, seconds."""
    epoch: Epoch | None = None
    """The present one; None: it has been settled."""
    proposed: tuple[int, ...] | None = None
    """Bounds that haven't been adopted."""
    sums: PhaseSums = field(default_factory=PhaseSums)
    rate: IterationRate = field(default_factory=IterationRate)
    evidence: RowEvidence = field(default_factory=RowEvidence)
    last: CompleteIteration | None = None
    checkpoints: CheckpointSchedule | None = None
    is_restored: bool = False
    """The job has continued from the checkpoint that it was given, or there is none."""
    continued_after: int = 0
    """The iteration of that checkpoint."""
    restores: bool = False
    """The next epoch begins with what devices saved of iteration `finished`."""
    is_held: bool = False
    """A thread copies or restores the state: no epoch may begin, also of another attempt."""
    replan_reason: str = ""
    """Why the job is planned again once the present epoch has paused; "": it isn't."""
    history: IterationRecorder = field(init=False)
    _move: Move | None = None
    _present: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._present = set(self.devices)
        self.history = IterationRecorder(self.devices)

    @property
    def is_warming_up(self) -> bool:
        """Whether the first iteration is a round that will be repeated."""
        return self.balance is not None and self.balance.is_warming_up and self.finished <= 1

    def balance_with(self, balance: IterationBalance, devices: Collection[str]) -> None:
        """Use `balance`, of the first plan; `devices`: those that it hasn't lost.

        Later plans only add devices: what has been measured meanwhile is worth more.
        """
        if self.balance is None:
            self.balance = balance
            self._present = set(devices)

    # ---- epochs

    def next_epoch(self, usable: Collection[str], *, is_paced: bool) -> Epoch:
        """Return the next epoch, of those of `usable` that have rows; none is running.

        `usable` isn't empty.
        """
        rows = self._shares(usable)
        first, last = first_iteration(self.finished, self.ended)
        self.epochs += 1
        self.proposed = None
        self.epoch = Epoch(
            self.epochs,
            tuple(rows),
            tuple(self.devices.index(device) for device in rows),
            bounds_of(tuple(rows.values())),
            first,
            self.max_iterations if last is None else last,
            self.previous if first else (),
            is_paced,
            self.restores,
        )
        return self.epoch

    def complete(self, now: float) -> None:
        """Record that the outputs are complete."""
        self.is_complete = True
        if not self.seconds and self.begun_at is not None:
            self.seconds = now - self.begun_at

    def settle(self, finished: int, ended: int | None, *, is_paused: bool = False) -> None:
        """Record how far the devices of the present epoch got; they have stopped.

        `is_paused`: all of them after the same iteration; otherwise some may have begun the next
        one.
        """
        epoch, self.epoch = self.epoch, None
        assert epoch is not None, "settled twice"
        self.restores = False
        self.ended = ended if ended is not None else self.ended
        if finished < epoch.first:
            return
        is_round = self.is_warming_up and finished == 1 and self.ended is None and is_paused
        if epoch.first == 0 or not is_round:
            self.previous = epoch.slots
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
        self.rate = IterationRate()

    def _shares(self, usable: Collection[str]) -> dict[str, int]:
        """Return device -> rows at the beginning of an epoch, in the order of slots."""
        present = [device for device in self.devices if device in usable]
        balance = self.balance
        if balance is None:
            return shares_of({}, present, self.load, self.granule)
        for device in present:
            if device not in self._present:
                balance.restore(self.devices.index(device))
        for device in sorted(self._present.difference(present)):
            balance.lose(self.devices.index(device))
        gone, come = self._present.difference(present), set(present) - self._present
        self._present = set(present)
        shares = self.wanted_shares(present)
        if gone or come:
            self.announce(shares, _change(gone, come), "lost" if gone else "joined")
        else:
            self.announce(shares)
        return shares

    def wanted_shares(self, devices: Sequence[str]) -> dict[str, int]:
        """Return the balance's shares of those of `devices` that shall have rows."""
        assert self.balance is not None
        wanted = dict(zip(self.devices, self.balance.rows, strict=True))
        chosen = [device for device in devices if wanted[device]]
        return shares_of(wanted, chosen or devices, self.load, self.granule)

    def continue_after(self, iteration: int, residual: float | None) -> None:
        """Record that the job's arrays are as after `iteration`, from a checkpoint."""
        self.finished = self.reported = self.continued_after = iteration
        self.previous = ()  # its combined values are in the slot for these
        self.residual = math.nan if residual is None else residual
        self.history = IterationRecorder(self.devices, iteration + 1)

    # ---- reports

    def add(self, complete: CompleteIteration, now: float) -> None:
        """Add an iteration that all devices of its epoch have reported."""
        if self.last is not None and self.last.rows != complete.rows:
            self.moves += 1
        self.last = complete
        self.reported = complete.iteration
        self.residual = complete.residual
        self.sums.add(complete)
        self.rate.add(complete.iteration, now)
        if self.epoch is not None and self.epoch.is_paced:
            self.seconds += complete.count * complete.seconds
        self.evidence.add(complete)
        self.history.add(
            complete.iteration,
            tuple(complete.rows.get(device, 0) for device in self.devices),
            tuple(complete.times.get(device) for device in self.devices),
            complete.residual,
            complete.count,
        )

    def announce(
        self, shares: Mapping[str, int], reason: str = "", kind: MoveKind = "balance"
    ) -> None:
        """Record why devices get other rows: default, for the reason of the balance."""
        rows, move = tuple(shares.get(device, 0) for device in self.devices), self._move
        decided = DecidedMove(rows, reason, kind)
        if not reason and move is not None:
            seconds = move.seconds_before, move.seconds_after, move.cost
            decided = DecidedMove(rows, move.reason, kind, *seconds)
        self.history.announce(decided)

    def tell_balance(self, complete: Sequence[CompleteIteration], remaining: int | None) -> bool:
        """Pass iterations to the balance; return whether it wants other shares."""
        if self.balance is None or not complete:
            return False
        reported = [
            TimedIteration(
                each.iteration,
                tuple(each.rows.get(device, 0) for device in self.devices),
                tuple(each.times.get(device) for device in self.devices),
                each.count,
            )
            for each in complete
        ]
        move = self.balance.tell(reported, remaining)
        self._move = move or self._move
        return move is not None


def _change(gone: Collection[str], come: Collection[str]) -> str:
    """Return which devices no longer take part, and which do now."""
    parts = []
    if gone:
        parts.append(f"without {', '.join(sorted(gone))}")
    if come:
        parts.append(f"with {', '.join(sorted(come))}")
    return " and ".join(parts)
