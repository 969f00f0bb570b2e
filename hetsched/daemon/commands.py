"""Commands of the daemon's core, which the server executes in order.

Structs, because they are several times faster to create than frozen dataclasses.
"""

from __future__ import annotations

import msgspec

from hetsched.engine.queued_job import Readmission
from hetsched.errors import HetschedError
from hetsched.job import Done, Failed, JobSpec
from hetsched.store.journal.records import JobChanged, Record
from hetsched.transport.inspection.metric_records import Metric
from hetsched.transport.messages import DaemonOverview, History, QueueChange, Reply, SessionAnswer


class SendReply(msgspec.Struct, frozen=True):
    """Reply over ZeroMQ. `droppable`: progress that a later reply supersedes."""

    identity: bytes
    reply: Reply
    droppable: bool = False


class AnswerSession(msgspec.Struct, frozen=True):
    """Answer over a session's socket, with the fd of `segment` unless it is None.

    `with_socket`: with the other end of a new socket for its requests, if there can be one.
    """

    session: int
    answer: SessionAnswer
    segment: int | None = None
    with_socket: bool = False


class CloseSession(msgspec.Struct, frozen=True):
    session: int


class AllocateSegment(msgspec.Struct, frozen=True):
    """Allocate a segment, then call `on_allocated` or `on_allocation_failed` of the core."""

    session: int
    nbytes: int


class AdoptSegment(msgspec.Struct, frozen=True):
    """Adopt the segment that came with the request being handled; then as AllocateSegment."""

    session: int


class RetainSegment(msgspec.Struct, frozen=True):
    segment: int


class ReleaseSegment(msgspec.Struct, frozen=True):
    segment: int


class SubmitJob(msgspec.Struct, frozen=True):
    """Submit to the engine, which holds the segments of `spec` from then on.

    The engine's answer goes to `on_engine_reply` of the core, each state to `on_job_state`, and
    prepared output files to `on_outputs_prepared`. `readmission`: of a job that an earlier daemon
    has accepted.
    """

    ticket: int
    spec: JobSpec
    number: int
    readmission: Readmission | None = None


class CancelJob(msgspec.Struct, frozen=True):
    job: int


class CancelJobs(msgspec.Struct, frozen=True):
    """Call `on_cancel` of the core for these jobs, a few per turn of the loop; then `reply`."""

    jobs: tuple[int, ...]
    reply: SendReply


class ChangeQueue(msgspec.Struct, frozen=True):
    """Change a waiting job as `change` says, then call `on_queue_changed` of the core."""

    identity: bytes
    number: int
    change: QueueChange


class AlterJob(msgspec.Struct, frozen=True):
    """Give a waiting job what was decided about it before the engine had it."""

    job: int
    priority: int
    is_held: bool


class ReadPositions(msgspec.Struct, frozen=True):
    """Look up where these jobs wait, then call `on_positions` of the core."""

    identity: bytes
    number: int
    jobs: tuple[int, ...]


class ReadHistory(msgspec.Struct, frozen=True):
    """Look up jobs in the journal, then call `on_history` of the core."""

    identity: bytes
    number: int
    request: History


class StopDaemon(msgspec.Struct, frozen=True):
    """Begin to stop; unless `now`, as soon as no job runs or could start."""

    now: bool


class ExpectJob(msgspec.Struct, frozen=True):
    """Tell the engine that a job of an earlier daemon will come: others may run after it."""

    job: int


class RememberJob(msgspec.Struct, frozen=True):
    """Tell the engine how a job of an earlier daemon ended: others may run after it."""

    job: int
    state: Done | Failed


class AcceptanceWritten(msgspec.Struct, frozen=True):
    """A job's acceptance is in the journal, or can't be written."""

    ticket: int


class PublishingWritten(msgspec.Struct, frozen=True):
    """The journal knows the output files that a job is about to name, or can't be written."""

    ticket: int


class EndWritten(msgspec.Struct, frozen=True):
    """A job's end is in the journal, or can't be written."""

    ticket: int


class ChangeWritten(msgspec.Struct, frozen=True):
    """A waiting job's new priority or hold is in the journal, so that `reply` is true; or not."""

    record: JobChanged
    reply: SendReply


Written = AcceptanceWritten | PublishingWritten | EndWritten | ChangeWritten


class WriteJournal(msgspec.Struct, frozen=True):
    """Write records to the journal, then call ``on_written(then, error)`` of the core.

    Without `then` the core isn't called: the journal keeps the records until it can write them.
    """

    records: tuple[Record, ...]
    then: Written | None = None
    urgent: bool = False


class ContinuePublishing(msgspec.Struct, frozen=True):
    """Let a job name its output files, or fail it with `error`."""

    job: int
    error: HetschedError | None = None


class ListDevices(msgspec.Struct, frozen=True):
    """Answer request `number` of `identity` with the engine's devices, perhaps changed first."""

    identity: bytes
    number: int
    probe: bool = False
    enable: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()


class CollectMetrics(msgspec.Struct, frozen=True):
    """Answer request `number` of `identity` with `metrics` and those of the process."""

    identity: bytes
    number: int
    metrics: tuple[Metric, ...]
    uptime: float


class CollectOverview(msgspec.Struct, frozen=True):
    """Answer request `number` of `identity` with `overview`, completed by devices and memory."""

    identity: bytes
    number: int
    overview: DaemonOverview


class ExplainJob(msgspec.Struct, frozen=True):
    """Answer request `number` of `identity` with a job's explanation, or why there is none."""

    identity: bytes
    number: int
    job: int


class Trim(msgspec.Struct, frozen=True):
    """Return free segments, and the heap's free pages, to the system."""


Command = (
    SendReply
    | AnswerSession
    | CloseSession
    | AllocateSegment
    | AdoptSegment
    | RetainSegment
    | ReleaseSegment
    | Trim
    | SubmitJob
    | CancelJob
    | CancelJobs
    | ChangeQueue
    | AlterJob
    | ReadPositions
    | ReadHistory
    | StopDaemon
    | ExpectJob
    | RememberJob
    | WriteJournal
    | ContinuePublishing
    | ListDevices
    | CollectMetrics
    | CollectOverview
    | ExplainJob
)
