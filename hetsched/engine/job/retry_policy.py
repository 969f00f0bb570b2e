"""The limits on retries of a job. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hetsched.errors import JobFailed
from hetsched.text import MAX_GROUP_ROWS, grouped_rows

MAX_ATTEMPTS = 5
"""Maximum attempts at one job. Arbitrary; prevents endless restarts."""
MAX_DEATHS = 3
"""Deaths of device processes after which the job is assumed to cause them. Arbitrary."""


@dataclass(frozen=True, slots=True)
class RetryCounts:
    """Attempts at a job, deaths of its device processes, and why it last started over."""

    attempts: int = 0
    deaths: int = 0
    reason: str = ""

    def with_attempt(self) -> RetryCounts:
        return RetryCounts(self.attempts + 1, self.deaths, self.reason)

    def with_death(self) -> RetryCounts:
        return RetryCounts(self.attempts, self.deaths + 1, self.reason)

    def with_reason(self, reason: str) -> RetryCounts:
        return RetryCounts(self.attempts, self.deaths, reason)

    def attempts_error(self) -> JobFailed | None:
        """Return the error of a job that has used up its attempts; None while some remain."""
        if self.attempts <= MAX_ATTEMPTS:
            return None
        return JobFailed(f"gave up after {MAX_ATTEMPTS} attempts: {self.reason}")

    def deaths_error(self, reason: str) -> JobFailed | None:
        """Return the error of a job whose device processes died too often; `reason`: the last."""
        if self.deaths < MAX_DEATHS:
            return None
        return JobFailed(f"its device processes died {self.deaths} times: {reason}")


def loss_note(devices: Sequence[str], reason: str) -> str:
    """Return the note for a job's report about a device process that died."""
    names = ", ".join(label for label, _ in grouped_rows(devices, str, MAX_GROUP_ROWS))
    return f"the process of {names} died, {reason}: its unfinished chunks ran again"
