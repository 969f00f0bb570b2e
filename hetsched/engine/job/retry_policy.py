"""How often one job is tried before it is given up."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.errors import JobFailed
from hetsched.text import MAX_CORES, together

MAX_ATTEMPTS = 5
"""Starts of one job, after which it fails rather than go on for ever. Arbitrary."""
MAX_DEATHS = 3
"""Deaths of device processes, after which a job is taken for their cause. Arbitrary."""


class Patience:
    """Counts the starts of one job and the deaths of its device processes."""

    def __init__(self) -> None:
        self._attempts = self._deaths = 0
        self._reason = ""

    def start(self) -> JobFailed | None:
        """Once more; or why not."""
        self._attempts += 1
        if self._attempts <= MAX_ATTEMPTS:
            return None
        return JobFailed(f"given up after {MAX_ATTEMPTS} starts: {self._reason}")

    def again(self, reason: str) -> None:
        """Why the next start is needed."""
        self._reason = reason

    def death(self, reason: str) -> JobFailed | None:
        """One of its device processes died; why that was once too often, if it was."""
        self._deaths += 1
        if self._deaths < MAX_DEATHS:
            return None
        return JobFailed(f"its device processes died {self._deaths} times: {reason}")


def loss(devices: Sequence[str], reason: str) -> str:
    """What a job's report says of a device process that died in it."""
    names = ", ".join(label for label, _ in together(devices, str, MAX_CORES))
    return f"the process of {names} died, {reason}: what it hadn't finished ran again"
