"""Which waiting job may run beside a larger one, and on which core. Pure.

The larger job is the main job; a side job runs on one core, which the operating system divides
between the two (`device_process/device_threads.py`). It delays the main job by no more than its
own work, which stealing spreads over all devices. The bounds:

* a side job takes at most 5 % of the time that the main job still needs (predicted for a core that
  does nothing else);
* a core has one side job at a time, so the main job has at least half of each core and ends even
  if side jobs never do;
* a side job starts at once, or when an earlier one leaves a core;
* the next main job is the first in line, whatever runs at the side: no job waits for side jobs.

A job without measurements is compared with the main job, per byte and per operation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

SMALL_FRACTION = 0.05
"""Time of a side job on one core, as a fraction of the main job's remaining time."""
MIN_REMAINING_SECONDS = 0.02
"""Below this a waiting job's turn comes soon enough."""
GUESS_MARGIN = 4.0
"""Factor on the time of a job without measurements: kernels differ in speed. Arbitrary."""


@dataclass(frozen=True)
class Outlook:
    """What the main job still has to do.

    Attributes
    ----------
    job : int
    remaining_seconds : float
    devices : collection of str
        Those that still work for it.
    unit_seconds : float or None, seconds/unit
        Time of a unit on its slowest core; None if unknown.
    """

    job: int
    remaining_seconds: float
    devices: Collection[str]
    unit_seconds: float | None = None

    @property
    def is_long(self) -> bool:
        """Whether any job may be small beside it."""
        return self.remaining_seconds >= MIN_REMAINING_SECONDS


@dataclass(frozen=True)
class JobSize:
    """A measure of a job's work. `flops`: 0 if unknown."""

    units: int
    nbytes: float
    flops: float

    def in_units_of(self, other: JobSize) -> float:
        """Return how many units of job `other` are as much work as this job."""
        ratios = [
            mine / theirs
            for mine, theirs in ((self.nbytes, other.nbytes), (self.flops, other.flops))
            if mine > 0 and theirs > 0
        ]
        return other.units * max(ratios, default=float("inf"))


def guessed_seconds(job: JobSize, main: JobSize, outlook: Outlook) -> float | None:
    """Return a cautious time of a job without measurements on one core; None: no idea."""
    if outlook.unit_seconds is None:
        return None
    return GUESS_MARGIN * outlook.unit_seconds * job.in_units_of(main)


@dataclass
class SmallJobRule:
    """The side jobs of the present main job.

    Attributes
    ----------
    running : dict of int to str
        Side job -> its core; also those that began beside an earlier main job.
    started : int
        Side jobs started beside this main job.
    """

    main: int | None = None
    running: dict[int, str] = field(default_factory=dict)
    started: int = 0
    _is_barred: bool = False
    _is_guess_running: int | None = None
    _core_seconds: dict[str, float] = field(default_factory=dict)

    def begin(self, main: int) -> None:
        """Start counting for another main job; no effect if it is the same."""
        if main != self.main:
            self.main, self.started, self._is_barred = main, 0, False
            self._core_seconds.clear()

    def bar(self) -> None:
        """Admit no more side jobs beside this main job: a device process has died."""
        self._is_barred = True

    def free(self, cores: Iterable[str]) -> set[str]:
        """Return those of `cores` that may take a side job now."""
        return set() if self._is_barred else set(cores).difference(self.running.values())

    def choose(self, cores: Sequence[str], busy: Collection[str]) -> str:
        """Return the core for a job that may use any of the free `cores`.

        One that has nothing left to do for the main job (it isn't among `busy`); else the one that
        has lost the least time so far.
        """
        lost = self._core_seconds
        return min(cores, key=lambda core: (core in busy, lost.get(core, 0.0)))

    def admits(
        self, predicted: float | None, guess: float | None, remaining_seconds: float
    ) -> bool:
        """Return whether a job is small enough.

        Parameters
        ----------
        predicted : float or None, seconds
            On one core; None: no measurements.
        guess : float or None, seconds
            Used without a prediction; only one such job runs at a time.
        """
        if predicted is None and self._is_guess_running is not None:
            return False
        seconds = guess if predicted is None else predicted
        return seconds is not None and seconds <= SMALL_FRACTION * remaining_seconds

    def start(self, number: int, core: str, seconds: float, *, is_guess: bool) -> None:
        """Record a side job of about `seconds`."""
        self.running[number] = core
        self.started += 1
        self._core_seconds[core] = self._core_seconds.get(core, 0.0) + seconds
        if is_guess:
            self._is_guess_running = number

    def end(self, number: int) -> None:
        """Record the end of a side job."""
        self.running.pop(number, None)
        if self._is_guess_running == number:
            self._is_guess_running = None
