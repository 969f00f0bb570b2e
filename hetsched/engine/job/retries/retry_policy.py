"""The limits on retries of a job. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.errors import JobFailed

MAX_ATTEMPTS = 5
"""Maximum attempts at one job besides those after a death of a device process, which are limited
by the number of devices. Arbitrary; prevents endless restarts."""


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
        if self.attempts - self.deaths <= MAX_ATTEMPTS:
            return None
        return JobFailed(f"gave up after {self.attempts - 1} attempts: {self.reason}")
