"""The shared memory in which devices wait for each other, and the engine controls iterations.

Every word has one writer, so no atomic operation is needed: each device has a line with the number
of times that it has arrived, and the engine and the first device have lines of their own. Words
are 32-bit and aligned, so they are read and written as a whole; what was stored before a word that
others wait for is visible with it (`futex.py`).

Devices with their own memory store their rows in the home arrays only now and then. Then all
devices save their rows beside the home arrays, so that they can go back there together when one
of those with their own memory is lost.

A split is adopted by all devices after the same iteration: the first device of the epoch reads
what the engine has proposed and writes its decision before it arrives at the end of the iteration;
the others read that decision after they have all arrived.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.transport import futex

WORDS_PER_LINE = 16
"""64 bytes: one line of the cache."""
MAX_ARRIVALS = 2**30
"""After so many in one epoch, some hours of short stages, another one begins to count anew."""
RECHECK_SECONDS = 0.05
"""How long a device sleeps before it looks for an abort and for commands."""
_HEADER_LINES = 8
_ABORT, _ALLOWED, _PROPOSAL, _PAUSE, _DECISION, _, _REQUEST, _KEPT = (
    WORDS_PER_LINE * line for line in range(_HEADER_LINES)
)
"""First words of lines; decisions have two. _REQUEST, the engine's: saves that it has asked for,
and how many of these it has released. _KEPT, the first device's: for which it has begun a save,
and the iteration of that, plus 1, once it is complete. While a save isn't released, no other one
replaces it."""
_FINISHED, _ENDED, _HOME, _SAVED, _DEFERS = range(1, 6)
"""Words of a device's line: the last iteration that it has finished, plus 1; the iteration after
which it has begun the finish stages, plus 1; the iteration of which all its rows are in the home
arrays, plus 1; the iteration of which they are saved, plus 1; whether it can store its rows later
than it computes them."""


class Aborted(Exception):
    """The engine has given up the epoch."""


@dataclass(frozen=True)
class EpochDecision:
    """What follows an iteration; `proposal`: the newest one's number."""

    proposal: int
    pause: bool
    save: bool = False


def control_words(slots: int) -> int:
    return WORDS_PER_LINE * (_HEADER_LINES + slots) + 2 * _proposal_words(slots)


def slots_of(words: int) -> int:
    """Invert `control_words`."""
    slots = 1
    while control_words(slots) < words:
        slots += 1
    return slots


def _proposal_words(slots: int) -> int:
    return WORDS_PER_LINE * -(-2 * (slots + 1) // WORDS_PER_LINE)  # 64-bit bounds


class IterationControl:
    """The control memory of one job: `words`, int32, are 0 at first.

    `spin_seconds`: how long a device looks for another one's arrival before it sleeps. Waking up
    takes 5 to 50 microseconds, so one that has a core to itself should wait about as long (Karlin
    et al., SOSP 1991); a thread that shares its core or its interpreter shouldn't spin.
    """

    def __init__(self, words: np.ndarray, slots: int, spin_seconds: float = 0.0) -> None:
        futex.register()
        self._words = words
        self._view = words.data  # several times as fast for single words
        self._slots = slots
        self._spin_seconds = spin_seconds
        self._address = words.ctypes.data
        self._arrived = 0

    # ---- the engine

    def begin(self, first: int = 0, *, restores: bool = False, keeps_save: bool = False) -> None:
        """Reset everything for an epoch from iteration `first` on; no device may be in one.

        `restores`: it begins with what is saved of iteration `first` - 1. `keeps_save`: nothing
        is saved before `release_save`.
        """
        self._words[...] = 0
        if keeps_save:
            self._words[_REQUEST] = self._words[_KEPT] = 1
        for slot in range(self._slots):
            line = self._arrivals(slot)
            self._words[line + _FINISHED] = first
            self._words[line + (_SAVED if restores else _HOME)] = first

    def abort(self) -> None:
        """End the epoch as soon as a device would have to wait for another one."""
        self._write(_ABORT, 1)
        for slot in range(self._slots):
            futex.wake(self._address + 4 * self._arrivals(slot))
        futex.wake(self._address + 4 * _ALLOWED)

    def pause(self) -> None:
        """End the epoch after the present iteration or the next one."""
        self._write(_PAUSE, 1)

    def propose(self, bounds: Sequence[int]) -> int:
        """Propose a split of the same devices; return its number, from 1 on.

        The previous proposal must have been adopted.
        """
        number = self.proposed + 1
        self._bounds(number)[: len(bounds)] = bounds
        self._write(_PROPOSAL, number)
        return number

    def allow(self, iteration: int) -> None:
        """Let paced devices begin iterations up to this one."""
        self._write(_ALLOWED, iteration)

    def request_save(self) -> None:
        """Have the devices save their rows after the present iteration or the next one, once.

        The previous save must have been released.
        """
        self._words[_REQUEST] += 1

    def kept(self) -> int | None:
        """Return the iteration of the save that was requested; None: it isn't complete."""
        is_released = self._words[_REQUEST + 1] >= self._words[_KEPT]
        iteration = int(self._words[_KEPT + 1]) - 1
        return None if is_released or iteration < 0 else iteration

    def release_save(self) -> None:
        """Let another save replace the one that was requested."""
        self._words[_REQUEST + 1] = self._words[_REQUEST]

    def finished(self, slots: Sequence[int]) -> int:
        """Return the last iteration that all of `slots` have finished; -1: not even the start.

        Valid while they run as well as after they have died, as `ended` and `saved`.
        """
        return min(int(self._words[self._arrivals(slot) + _FINISHED]) for slot in slots) - 1

    def ended(self, slots: Sequence[int]) -> int | None:
        """Return the iteration after which one of `slots` has begun the finish stages, if any."""
        last = max(int(self._words[self._arrivals(slot) + _ENDED]) for slot in slots) - 1
        return None if last < 0 else last

    def saved(self, slots: Sequence[int]) -> int | None:
        """Return the iteration to go back to, of which all of `slots` have saved their rows.

        None: all rows are in the home arrays as of the last iteration that is finished.
        """
        lines = [self._arrivals(slot) for slot in slots]
        finished = min(int(self._words[line + _FINISHED]) for line in lines)
        if all(int(self._words[line + _HOME]) >= finished for line in lines):
            return None
        return min(int(self._words[line + _SAVED]) for line in lines) - 1

    def arrivals(self, slot: int) -> int:
        """Return how often the device has arrived in this epoch: who is behind the others?"""
        return int(self._words[self._arrivals(slot)])

    @property
    def proposed(self) -> int:
        """The number of the newest proposal; 0: none."""
        return int(self._words[_PROPOSAL])

    # ---- devices

    def arrive(self, slot: int) -> int:
        """Return how often the device has arrived, with this time."""
        word = self._arrivals(slot)
        count = self._arrived = int(self._view[word]) + 1
        self._write(word, count)
        return count

    def finish(self, slot: int, iteration: int, *, is_home: bool = True) -> None:
        """Record the end of `iteration`, before arriving at it; `is_home`: as `come_home`."""
        if is_home:
            self.come_home(slot, iteration)
        self._words[self._arrivals(slot) + _FINISHED] = iteration + 1

    def come_home(self, slot: int, iteration: int) -> None:
        """Record that all rows of the device are in the home arrays as of `iteration`."""
        self._words[self._arrivals(slot) + _HOME] = iteration + 1

    def save(self, slot: int, iteration: int) -> None:
        self._words[self._arrivals(slot) + _SAVED] = iteration + 1

    def keep(self, iteration: int) -> None:
        """Record that all devices have saved `iteration`; by the first device."""
        if self._words[_KEPT] > self._words[_REQUEST + 1]:
            self._words[_KEPT + 1] = iteration + 1

    def defer(self, slot: int) -> None:
        """Record that the device can store its rows later than it computes them."""
        self._words[self._arrivals(slot) + _DEFERS] = 1

    def defers(self, slots: Sequence[int]) -> bool:
        return any(self._view[self._arrivals(slot) + _DEFERS] for slot in slots)

    def end(self, slot: int, iteration: int) -> None:
        """Record that the device begins the finish stages after `iteration`."""
        self._words[self._arrivals(slot) + _ENDED] = iteration + 1

    def wait_for(self, slots: Sequence[int], count: int, seconds: float = RECHECK_SECONDS) -> bool:
        """Sleep until the devices of `slots` have arrived `count` times.

        Return whether they have; one that is late is waited for for `seconds`. Raises Aborted,
        but not if all of them have arrived: then the others have seen that, too, and go on.
        """
        return all(self._wait_until(self._arrivals(slot), count, seconds) for slot in slots)

    def wait_until_allowed(self, iteration: int, seconds: float = RECHECK_SECONDS) -> bool:
        """Sleep until the engine allows `iteration`; return whether it does. Raises Aborted."""
        return self._wait_until(_ALLOWED, iteration, seconds)

    def decide(self, iteration: int, *, save: bool = False, can_save: bool = False) -> None:
        """Decide what follows `iteration`; by the first device, before it arrives at its end.

        `save`: it should be saved, unless another one is kept. `can_save`: there is room for it.
        """
        pause = int(self._words[_PAUSE] != 0 or self._arrived >= MAX_ARRIVALS)
        requested, begun = self._words[_REQUEST], self._words[_KEPT]
        is_kept = begun > self._words[_REQUEST + 1]
        is_requested = bool(can_save and not pause and requested > begun)
        if is_requested:
            self._words[_KEPT + 1] = 0
            self._words[_KEPT] = requested
        save = is_requested or (save and not is_kept)
        self._words[_DECISION + iteration % 2 * WORDS_PER_LINE] = (
            self.proposed << 2 | save << 1 | pause
        )

    def decision(self, iteration: int) -> EpochDecision:
        """Return what was decided, once all devices have arrived at the end of `iteration`."""
        word = int(self._words[_DECISION + iteration % 2 * WORDS_PER_LINE])
        return EpochDecision(word >> 2, bool(word & 1), bool(word & 2))

    def bounds(self, proposal: int, ranks: int) -> tuple[int, ...]:
        return tuple(int(bound) for bound in self._bounds(proposal)[: ranks + 1])

    # ---- words

    def _wait_until(self, word: int, value: int, seconds: float) -> bool:
        """Wait until the word has reached `value`, or for `seconds` after its last change."""
        view = self._view
        if view[word] < value and self._spin_seconds:
            end = time.monotonic() + self._spin_seconds
            while view[word] < value and time.monotonic() < end:
                pass
        while (seen := view[word]) < value:
            if view[_ABORT]:
                if view[word] >= value:
                    return True
                raise Aborted
            if not futex.wait(self._address + 4 * word, seen, seconds):
                return bool(view[word] >= value)
        return True

    def _write(self, word: int, value: int) -> None:
        futex.order_stores()
        self._view[word] = value
        futex.wake(self._address + 4 * word)

    def _arrivals(self, slot: int) -> int:
        return WORDS_PER_LINE * (_HEADER_LINES + slot)

    def _bounds(self, proposal: int) -> np.ndarray:
        size = _proposal_words(self._slots)
        first = WORDS_PER_LINE * (_HEADER_LINES + self._slots) + proposal % 2 * size
        return self._words[first : first + size].view(np.int64)
