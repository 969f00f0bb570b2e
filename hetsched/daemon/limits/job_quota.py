"""Quotas of the queue: unfinished jobs per client, and the bytes of all their parameters. Pure.

How many jobs may wait or run altogether is the engine's to check (`queue.limit`).
"""

from __future__ import annotations

from collections import Counter

from hetsched.errors import TryAgain
from hetsched.job import JobSpec
from hetsched.transport.codec import encode
from hetsched.units import format_bytes


class JobQuota:
    """Counts the unfinished jobs.

    Parameters
    ----------
    per_client : int or None
        Unfinished jobs of one client; None: any number.
    parameters : int, bytes
        Of the requests of all unfinished jobs, which are mostly their parameters. The last one
        may exceed it.
    """

    def __init__(self, per_client: int | None, parameters: int) -> None:
        self._per_client = per_client
        self._parameters = parameters
        self._jobs: dict[int, tuple[int, int]] = {}
        self._counts: Counter[int] = Counter()
        self.nbytes = 0

    def check(self, session: int) -> None:
        """Raise TryAgain if a client may submit nothing at present."""
        if self._per_client is not None and self._counts[session] >= self._per_client:
            raise TryAgain(
                f"this client already has {self._per_client} unfinished jobs, which is the limit"
                " (queue.per_client in the config); try again when some have ended"
            )
        if self.nbytes >= self._parameters:
            raise TryAgain(
                f"the parameters of all unfinished jobs take {format_bytes(self.nbytes)}; the"
                f" limit is {format_bytes(self._parameters)} (queue.parameters in the config);"
                " try again when some have ended"
            )

    def add(self, ticket: int, session: int, spec: JobSpec) -> None:
        """Count a job that `session` has submitted."""
        size = len(encode(spec))
        self._jobs[ticket] = session, size
        self._counts[session] += 1
        self.nbytes += size

    def remove(self, ticket: int) -> None:
        """Stop counting a job that has ended or was refused; others are ignored."""
        session, size = self._jobs.pop(ticket, (0, 0))
        self.nbytes -= size
        self._counts[session] -= 1
        if self._counts[session] <= 0:
            del self._counts[session]
