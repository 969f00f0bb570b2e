"""Cancel: end a job; a running one at a chunk's edge."""

from __future__ import annotations

from hetsched.client.connection import Connection, expect
from hetsched.transport.messages import Acknowledged, Cancel


def cancel(connection: Connection, job: int) -> None:
    """Raises InputMissing for a job that the daemon doesn't know."""
    expect(Acknowledged, connection.ask(Cancel(job)))


def cancel_soon(connection: Connection, job: int) -> None:
    """The same without waiting for the answer: the job's own end tells."""
    connection.send(Cancel(job), Indifferent())


class Indifferent:
    """Handler of an answer that nobody waits for."""

    def answer(self, answer: object) -> bool:
        return True

    def lost(self, error: Exception) -> None:
        pass
