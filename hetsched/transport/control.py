"""The shared memory in which devices wait for each other, and the engine controls iterations.

Every word has one writer, so no atomic operation is needed: each device has a line with the number
of times that it has arrived, and the engine and the first device have lines of their own. Words
are 32-bit and aligned, so they are read and written as a whole; what was stored before a word that
others wait for is visible with it.

Devices with their own memory store their rows in the home arrays only now and then. Then all
devices save their rows beside the home arrays, so that they can go back there together when one
of those with their own memory is lost.

A split is adopted by all devices after the same iteration: the first device of the epoch reads
what the engine has proposed and writes its decision before it arrives at the end of the iteration;
the others read that decision after they have all arrived.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import platform
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hetsched.errors import Unavailable

CONTROL = "control"
"""The name of the array that holds these words, in which devices wait for each other."""
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


class EpochDecision(NamedTuple):
    """What follows an iteration; `proposal`: the newest one's number."""

    proposal: int
    pause: bool
    save: bool = False
    report: bool = False


def control_words(slots: int) -> int:
    return WORDS_PER_LINE * (_HEADER_LINES + slots) + 2 * _proposal_words(slots)


def _proposal_words(slots: int) -> int:
    return WORDS_PER_LINE * -(-2 * (slots + 1) // WORDS_PER_LINE)  # 64-bit bounds


def _line(slot: int) -> int:
    return WORDS_PER_LINE * (_HEADER_LINES + slot)


class IterationControl:
    """The control memory of one job: `words`, as many as `control_words`, int32, 0 at first.

    `spin_seconds`: how long a device looks for another one's arrival before it sleeps. Waking up
    takes 5 to 50 microseconds, so one that has a core to itself should wait about as long (Karlin
    et al., SOSP 1991); a thread that shares its core or its interpreter shouldn't spin.
    """

    def __init__(self, words: np.ndarray, spin_seconds: float = 0.0) -> None:
        _order_stores(_REGISTER_GLOBAL_EXPEDITED)
        self._array = words
        self._words = words.data  # several times as fast as the array for single words
        self._slots = next(n for n in itertools.count(1) if control_words(n) >= words.size)
        self._spin_seconds = spin_seconds
        self._address = words.ctypes.data
        self._arrived = 0

    # ---- the engine

    def begin(self, first: int = 0, *, restores: bool = False, keeps_save: bool = False) -> None:
        """Reset everything for an epoch from iteration `first` on; no device may be in one.

        `restores`: as in `Iterate`. `keeps_save`: nothing is saved before `release_save`.
        """
        self._array[...] = 0
        if keeps_save:
            self._words[_REQUEST] = self._words[_KEPT] = 1
        for slot in range(self._slots):
            self._words[_line(slot) + _FINISHED] = first
            self._words[_line(slot) + (_SAVED if restores else _HOME)] = first

    def abort(self) -> None:
        """End the epoch as soon as a device would have to wait for another one."""
        self._write(_ABORT, 1)
        for word in (_ALLOWED, *map(_line, range(self._slots))):
            _wake(self._address + 4 * word)

    def pause(self) -> None:
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
        self._write(_ALLOWED, iteration)

    def request_save(self) -> None:
        """Have the devices save their rows once, soon; the previous save has been released."""
        self._words[_REQUEST] += 1

    def kept(self) -> int | None:
        """Return the iteration of the save that was requested; None: it isn't complete."""
        is_released = self._words[_REQUEST + 1] >= self._words[_KEPT]
        iteration = self._words[_KEPT + 1] - 1
        return None if is_released or iteration < 0 else iteration

    def release_save(self) -> None:
        self._words[_REQUEST + 1] = self._words[_REQUEST]

    def finished(self, slots: Sequence[int]) -> int:
        """Return the last iteration that all of `slots`, alive or dead, have finished; or -1."""
        return min(self._of(slots, _FINISHED)) - 1

    def ended(self, slots: Sequence[int]) -> int | None:
        """Return the iteration after which one of `slots` has begun the finish stages, if any."""
        last = max(self._of(slots, _ENDED)) - 1
        return None if last < 0 else last

    def saved(self, slots: Sequence[int]) -> int | None:
        """Return the iteration to go back to, of which all of `slots` have saved their rows.

        None: all rows are in the home arrays as of the last iteration that is finished.
        """
        if min(self._of(slots, _HOME)) >= min(self._of(slots, _FINISHED)):
            return None
        return min(self._of(slots, _SAVED)) - 1

    def arrivals(self, slot: int) -> int:
        """Return how often the device has arrived in this epoch: who is behind the others?"""
        return self._words[_line(slot)]

    @property
    def proposed(self) -> int:
        """The number of the newest proposal; 0: none."""
        return self._words[_PROPOSAL]

    # ---- devices

    def arrive(self, slot: int) -> int:
        count = self._arrived = self.arrivals(slot) + 1
        self._write(_line(slot), count)
        return count

    def finish(self, slot: int, iteration: int, *, is_home: bool = True) -> None:
        """Record the end of `iteration`, before arriving at it; `is_home`: as `come_home`."""
        if is_home:
            self.come_home(slot, iteration)
        self._words[_line(slot) + _FINISHED] = iteration + 1

    def come_home(self, slot: int, iteration: int) -> None:
        """Record that all rows of the device are in the home arrays as of `iteration`."""
        self._words[_line(slot) + _HOME] = iteration + 1

    def save(self, slot: int, iteration: int) -> None:
        self._words[_line(slot) + _SAVED] = iteration + 1

    def keep(self, iteration: int) -> None:
        if self._words[_KEPT] > self._words[_REQUEST + 1]:
            self._words[_KEPT + 1] = iteration + 1

    def defer(self, slot: int) -> None:
        """Record that the device can store its rows later than it computes them."""
        self._words[_line(slot) + _DEFERS] = 1

    def defers(self, slots: Sequence[int]) -> bool:
        return any(self._of(slots, _DEFERS))

    def end(self, slot: int, iteration: int) -> None:
        self._words[_line(slot) + _ENDED] = iteration + 1

    def wait_for(self, slots: Sequence[int], count: int, seconds: float = RECHECK_SECONDS) -> bool:
        """Wait at most `seconds` for each of `slots`; return whether all arrived `count` times.

        Raises Aborted, but not if all of them have arrived: the others have seen that and go on.
        """
        return all(self._wait_until(_line(slot), count, seconds) for slot in slots)

    def wait_until_allowed(self, iteration: int) -> bool:
        """Sleep until the engine allows `iteration`; return whether it does. Raises Aborted."""
        return self._wait_until(_ALLOWED, iteration, RECHECK_SECONDS)

    def decide(
        self, iteration: int, *, save: bool = False, can_save: bool = False, report: bool = False
    ) -> None:
        """Decide what follows `iteration`; by the first device, before it arrives at its end.

        `save`: it should be saved, unless another one is kept. `can_save`: there is room for it.
        `report`: all devices report it.
        """
        words = self._words
        pause = words[_PAUSE] != 0 or self._arrived >= MAX_ARRIVALS
        requested, begun = words[_REQUEST], words[_KEPT]
        is_kept = begun > words[_REQUEST + 1]
        is_requested = can_save and not pause and requested > begun
        if is_requested:
            words[_KEPT + 1] = 0
            words[_KEPT] = requested
        save = is_requested or (save and not is_kept)
        word = self.proposed << 3 | report << 2 | save << 1 | pause
        words[_DECISION + iteration % 2 * WORDS_PER_LINE] = word

    def decision(self, iteration: int) -> EpochDecision:
        """Return what was decided, once all devices have arrived at the end of `iteration`."""
        word = self._words[_DECISION + iteration % 2 * WORDS_PER_LINE]
        return EpochDecision(word >> 3, bool(word & 1), bool(word & 2), bool(word & 4))

    def bounds(self, proposal: int, ranks: int) -> tuple[int, ...]:
        return tuple(int(bound) for bound in self._bounds(proposal)[: ranks + 1])

    # ---- words

    def _of(self, slots: Sequence[int], word: int) -> list[int]:
        return [self._words[_line(slot) + word] for slot in slots]

    def _wait_until(self, word: int, value: int, seconds: float) -> bool:
        """Wait until the word has reached `value`, or for `seconds` after its last change."""
        words = self._words
        if words[word] < value and self._spin_seconds:
            end = time.monotonic() + self._spin_seconds
            while words[word] < value and time.monotonic() < end:
                pass
        while (seen := words[word]) < value:
            if words[_ABORT]:
                if words[word] >= value:
                    return True
                raise Aborted
            if not _sleep(self._address + 4 * word, seen, seconds):
                return words[word] >= value
        return True

    def _write(self, word: int, value: int) -> None:
        _order_stores(_GLOBAL_EXPEDITED)
        self._words[word] = value
        _wake(self._address + 4 * word)

    def _bounds(self, proposal: int) -> np.ndarray:
        size = _proposal_words(self._slots)
        first = _line(self._slots) + proposal % 2 * size
        return self._array[first : first + size].view(np.int64)


# ---- system calls: futex(2), membarrier(2)

_FUTEX = {"x86_64": 202, "aarch64": 98}
_MEMBARRIER = {"x86_64": 324, "aarch64": 283}
_GLOBAL_EXPEDITED, _REGISTER_GLOBAL_EXPEDITED = 1 << 1, 1 << 2
IS_ORDERED = platform.machine() == "x86_64"
"""Whether the processor keeps the order of stores, and of loads. Elsewhere membarrier(2) is called
before the store that others wait for: every thread of the registered processes then executes a
full barrier, so whoever sees that store also sees all earlier ones. Readers need none of their
own."""
_WAIT, _WAKE = 0, 1
_EVERYONE = 0x7FFFFFFF
_EXPECTED = (errno.EAGAIN, errno.ETIMEDOUT, errno.EINTR)

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_pointer = ctypes.c_void_p
_syscall.argtypes = (
    ctypes.c_long, _pointer, ctypes.c_int, ctypes.c_uint32, _pointer, _pointer, ctypes.c_uint32
)  # fmt: skip
_futex_number = _FUTEX.get(platform.machine(), -1)


class _Timespec(ctypes.Structure):
    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]


def _sleep(address: int, value: int, seconds: float) -> bool:
    """Sleep while the 32-bit word at `address` is `value`; return False after `seconds`.

    Also returns True for no reason, so the caller looks at the word again. Raises OSError.
    """
    timeout = ctypes.byref(_Timespec(int(seconds), int(seconds % 1 * 1e9)))
    return _futex(address, _WAIT, value & 0xFFFFFFFF, timeout) != errno.ETIMEDOUT


def _wake(address: int) -> None:
    _futex(address, _WAKE, _EVERYONE, None)


def _futex(address: int, operation: int, value: int, timeout: object) -> int:
    """Return 0 or the number of an expected error."""
    if _syscall(_futex_number, address, operation, value, timeout, None, 0) >= 0:
        return 0
    number = ctypes.get_errno()
    if number not in _EXPECTED:
        raise OSError(number, os.strerror(number))
    return number


def _order_stores(command: int) -> None:
    """Make all earlier stores visible before any later one, where the processor doesn't.

    Raises Unavailable.
    """
    if IS_ORDERED:
        return
    number = _MEMBARRIER.get(platform.machine(), -1)
    if _syscall(number, command, 0, 0, None, None, 0) < 0:
        reason = os.strerror(ctypes.get_errno())
        raise Unavailable(
            f"iterative jobs on {platform.machine()} need membarrier(2) of Linux 4.16: {reason}"
        )
