"""Messages between clients and the daemon.

Over the session's socket (SOCK_SEQPACKET): SessionRequest up, SessionAnswer down, with fds. Over
ZeroMQ (DEALER to ROUTER), one frame each, from processes with a session only: Envelope up, Reply
down. Submit and Follow have many replies, until the job has ended.

All are typed msgpack, never a pickle. Decoding returns a record of the expected type or raises
ProtocolError, whatever the peer sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

from hetsched.device import DeviceInfo
from hetsched.errors import ErrorRecord, ProtocolError
from hetsched.explain import Explanation
from hetsched.job import Dependency, DeviceNames, JobSpec, JobState, Priority, States
from hetsched.units import MAX_SECONDS

T = TypeVar("T")

PROTOCOL = 1
MAX_FRAME = 1 << 20
"""Bytes of the largest message that either side accepts."""
MAX_REASON = 300
"""Characters of a decoding error that are repeated: it may quote the message."""

encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
"""Returns a Struct or plain data as msgpack."""


class Decoder(Generic[T]):
    """A thread-safe decoder of a type, or of a union of tagged ones."""

    def __init__(self, message_type: Any) -> None:
        self._decode = msgspec.msgpack.Decoder(message_type).decode

    def __call__(self, payload: bytes) -> T:
        try:
            message: T = self._decode(payload)
        # Besides its own errors msgspec raises UnicodeDecodeError on bad UTF-8, RecursionError on
        # deep nesting, and what a record's __post_init__ raises: here any error is the peer's.
        except Exception as error:
            reason = str(error)[:MAX_REASON]
            raise ProtocolError(
                f"undecodable message ({reason}); the peer may have another version"
            ) from None
        return message


# session socket, client -> daemon


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    protocol: int
    version: str
    pid: int


class Allocate(msgspec.Struct, frozen=True, tag="allocate"):
    """Request a segment of at least `nbytes`. Answered by SegmentFd (with an fd) or Refused."""

    nbytes: int


class Map(msgspec.Struct, frozen=True, tag="map"):
    """Request the fd of a result's segment, with a reference to it until Drop."""

    segment: int


class Drop(msgspec.Struct, frozen=True, tag="drop"):
    """The client no longer uses `segment`. Not answered."""

    segment: int


class Adopt(msgspec.Struct, frozen=True, tag="adopt"):
    """A segment of an earlier daemon, whose fd comes with the message. Answered like Allocate."""


SessionRequest = Hello | Allocate | Map | Drop | Adopt


# session socket, daemon -> client


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    protocol: int
    version: str
    token: str
    endpoint: str
    pid: int


class SegmentFd(msgspec.Struct, frozen=True, tag="segment"):
    """`is_new`: an fd comes with it; else the client has already received it."""

    segment: int
    nbytes: int
    is_new: bool = msgspec.field(name="fresh")


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    error: ErrorRecord


class Discarded(msgspec.Struct, frozen=True, tag="discarded"):
    """The segment has been freed: unmap it. Not an answer to a request."""

    segment: int


SessionAnswer = Welcome | SegmentFd | Refused | Discarded


# ZeroMQ, client -> daemon


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    pass


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """Answered by Accepted or Refused; with `follow` then by States until the job has ended.

    `key`: unique; a request that is sent again with the same key, to this daemon or the next one,
    is answered for the same job. "" is none; the job's own `id` takes precedence.
    """

    spec: JobSpec
    follow: bool = True
    key: str = ""


class Status(msgspec.Struct, frozen=True, tag="status"):
    """Answered by a JobList of the newest jobs, or of those with numbers below `before`.

    `states`: only jobs in these (`hetsched.job.STATES`); `jobs`: only these, if there are any.
    """

    states: States = ()
    before: int | None = None
    jobs: tuple[int, ...] = ()


class Show(msgspec.Struct, frozen=True, tag="show"):
    job: int


class Follow(msgspec.Struct, frozen=True, tag="follow"):
    """Answered by States, the present one first, until the job has ended."""

    job: int


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Cancel a job, or None: all that haven't ended. Answered by JobNumbers."""

    job: int | None = None


class Hold(msgspec.Struct, frozen=True, tag="hold"):
    """Keep a waiting job from starting, or release it. Answered by Changed, as Prioritize."""

    job: int
    is_held: bool = True


class Prioritize(msgspec.Struct, frozen=True, tag="prioritize"):
    job: int
    priority: Priority


class Explain(msgspec.Struct, frozen=True, tag="explain"):
    """Answered by Explained; long timelines are thinned out."""

    job: int


class Devices(msgspec.Struct, frozen=True, tag="devices"):
    """Answered by a DeviceList, after the changes; `probe`: as `Control.device_list`."""

    probe: bool = False
    enable: DeviceNames = ()
    disable: DeviceNames = ()


class Metrics(msgspec.Struct, frozen=True, tag="metrics"):
    """Answered by MetricText."""


class Overview(msgspec.Struct, frozen=True, tag="overview"):
    """Answered by DaemonOverview, with at most `waiting` waiting jobs."""

    waiting: int = 50


class Retry(msgspec.Struct, frozen=True, tag="retry"):
    """As Submit of an ended job, but without States. `force`: replace output files that exist."""

    job: int
    key: str = ""
    force: bool = False


class History(msgspec.Struct, frozen=True, tag="history"):
    """As Status, of ended jobs too that are no longer remembered; `since`: of submission."""

    states: States = ()
    since: float | None = None
    before: int | None = None
    limit: Annotated[int, Meta(ge=1, le=500, description="an integer from 1 to 500")] = 500


class Clean(msgspec.Struct, frozen=True, tag="clean"):
    """Forget jobs that ended `older` seconds ago or earlier. Answered by JobNumbers."""

    states: States = ()
    older: Annotated[
        float,
        Meta(ge=0, le=MAX_SECONDS, description=f"seconds from 0 to {MAX_SECONDS:g}"),
    ] = 0.0


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """As `Control.drain`. Answered by Draining."""

    stop: bool = False
    now: bool = False
    undo: bool = False


class Events(msgspec.Struct, frozen=True, tag="events"):
    """Answered by numbered States of `jobs`, or of all, the present ones first, until they end."""

    jobs: tuple[int, ...] = ()


Request = (
    Ping | Submit | Status | Show | Follow | Cancel | Hold | Prioritize | Retry | History | Clean
    | Drain | Events | Explain | Devices | Metrics | Overview
)  # fmt: skip


class Envelope(msgspec.Struct, frozen=True):
    token: str
    number: int
    request: Request


# ZeroMQ, daemon -> client


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    pid: int
    version: str
    uptime_seconds: float


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """`durability`: "durable" if the job survives the daemon, else "volatile"."""

    job: int
    durability: str = "volatile"


class State(msgspec.Struct, frozen=True, tag="state"):
    """`sequence`: 1, 2, ... in answers to Events; the client didn't read missing ones in time."""

    state: JobState
    sequence: int = 0


class JobLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job in a list. `submitted_at`: seconds since the epoch.

    `shapes`: of its inputs in shared memory, such as "512x512 float64".
    """

    job: int
    workload: str
    params: dict[str, Any] = {}
    shapes: dict[str, str] = {}
    state: JobState
    submitted_at: float
    priority: int = 0
    label: str = ""
    id: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    after: tuple[Dependency, ...] = ()
    retries: int = 0
    timeout: float | None = None
    deadline: float | None = None


class JobList(msgspec.Struct, frozen=True, tag="jobs"):
    """Jobs by number. `has_earlier`: there are more, with smaller numbers."""

    jobs: tuple[JobLine, ...]
    has_earlier: bool = False


class JobNumbers(msgspec.Struct, frozen=True, tag="numbers"):
    jobs: tuple[int, ...]


class Draining(msgspec.Struct, frozen=True, tag="draining"):
    """`unfinished`: jobs that run or wait, those on hold included."""

    is_draining: bool
    unfinished: int


class Changed(msgspec.Struct, frozen=True, tag="changed"):
    """`is_changed`: False if the job was already as requested; `state`: afterwards."""

    is_changed: bool
    state: JobState


class DeviceList(msgspec.Struct, frozen=True, tag="devices"):
    """`absent`: kind or name of a device that is missing or takes no job at present -> the reason.

    `restricted`: device that takes no jobs of some kinds at present -> the reason.
    """

    devices: tuple[DeviceInfo, ...]
    absent: dict[str, str]
    restricted: dict[str, str] = {}


class Explained(msgspec.Struct, frozen=True, tag="explained"):
    explanation: Explanation


class MetricText(msgspec.Struct, frozen=True, tag="metrics"):
    """In Prometheus's text format."""

    text: str


# what `hetsched top` shows


class DeviceActivity(msgspec.Struct, frozen=True, kw_only=True):
    """What one device does for one job.

    `done` units exceed the planned `share` if chunks of others were stolen. Speeds are in units
    per second over the last chunks; `_busy` are fractions of the time of those, rates in bytes per
    second while copying. `is_iterative`: of its present rows, and of the last iterations.
    """

    device: str
    job: int
    workload: str
    variant: str
    share: int
    done: int = 0
    predicted_speed: float | None = None
    speed: float | None = None
    h2d_busy: float = 0.0
    compute_busy: float = 0.0
    d2h_busy: float = 0.0
    h2d_rate: float | None = None
    d2h_rate: float | None = None
    is_iterative: bool = False


class DaemonOverview(msgspec.Struct, frozen=True, kw_only=True, tag="overview"):
    """Running jobs, then the first waiting ones in about their order, and devices.

    `now`: by the daemon's clock; `running`, `waiting`, `ended`: how many there are in all.
    """

    daemon: Pong
    now: float
    is_stopping: bool = False
    jobs: tuple[JobLine, ...] = ()
    running: int = 0
    waiting: int = 0
    ended: int = 0
    devices: DeviceList
    activities: tuple[DeviceActivity, ...] = ()
    arena_used: int = 0
    arena_limit: int = 0


Answer = (
    Pong | Accepted | State | JobList | JobNumbers | Changed | Draining | DeviceList | Explained
    | MetricText | DaemonOverview | Refused
)  # fmt: skip


class Reply(msgspec.Struct, frozen=True):
    """`number`: of the request that it answers."""

    number: int
    answer: Answer
