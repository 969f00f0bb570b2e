"""What the daemon's core wants done: records that the server carries out, in order."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.job import JobSpec
from hetsched.transport.messages import Reply, SessionAnswer


@dataclass(frozen=True)
class Send:
    """Reply over ZeroMQ. `droppable`: a progress that a later one makes superfluous."""

    identity: bytes
    reply: Reply
    droppable: bool = False


@dataclass(frozen=True)
class Tell:
    """Answer over a session's socket, with the fd of `segment` beside it if not None."""

    session: int
    answer: SessionAnswer
    segment: int | None = None


@dataclass(frozen=True)
class HangUp:
    session: int


@dataclass(frozen=True)
class Allocate:
    """Get a segment; then tell the core by `allocated` or `not_allocated`."""

    session: int
    nbytes: int


@dataclass(frozen=True)
class Retain:
    segment: int


@dataclass(frozen=True)
class Release:
    segment: int


@dataclass(frozen=True)
class Start:
    """Submit to the engine, which holds the segments of `spec` from then on.

    Then tell the core by `replied`, and of every state by `state`.
    """

    ticket: int
    spec: JobSpec


@dataclass(frozen=True)
class Stop:
    """Cancel at the engine."""

    job: int


@dataclass(frozen=True)
class ListDevices:
    """Answer `number` of `identity` with what the engine knows of devices."""

    identity: bytes
    number: int


@dataclass(frozen=True)
class Explain:
    """Answer `number` of `identity` with the explanation of a job, or why there is none."""

    identity: bytes
    number: int
    job: int


@dataclass(frozen=True)
class Trim:
    """Give free segments back."""


Command = (
    Send
    | Tell
    | HangUp
    | Allocate
    | Retain
    | Release
    | Trim
    | Start
    | Stop
    | ListDevices
    | Explain
)
