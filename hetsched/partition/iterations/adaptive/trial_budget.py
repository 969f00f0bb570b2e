"""How many doubtful splits may be tried before the search for a cliff rests."""

from __future__ import annotations

MAX_TRIALS = 4
"""Trials in a row: within four iterations after a cliff was measured the split shall be balanced.
Fewer steps are larger ones; what they miss in the end is mostly below 5 %."""
RENEWAL = 16
"""The search is resumed after so many times as many readings as there were when it ended: four
trials of four times an iteration cost less than the iterations so far."""


class TrialBudget:
    """Attributes: `remaining`, the trials that may follow."""

    def __init__(self) -> None:
        self.remaining = MAX_TRIALS
        self._readings = 0
        self._resumes_at = 0

    def on_reading(self) -> None:
        """Count a reading; the search may be resumed."""
        self._readings += 1
        if not self.remaining and self._readings >= self._resumes_at:
            self.renew()

    def take(self) -> None:
        """Use one trial."""
        self.remaining -= 1
        self._resumes_at = RENEWAL * self._readings

    def renew(self) -> None:
        """Start a new search: another speed, or other devices."""
        self.remaining = MAX_TRIALS
