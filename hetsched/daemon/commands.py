"""Commands of the daemon's core, which the server executes in order."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.engine.engine import Readmission
from hetsched.errors import HetschedError
from hetsched.job import Done, Failed, JobSpec
from hetsched.store.journal.records import NumbersReserved, Record
from hetsched.transport.inspection.metric_records import Metric
from hetsched.transport.inspection.overview_records import DaemonOverview
from hetsched.transport.messages import History, QueueChange, Reply, SessionAnswer


@dataclass(frozen=True)
class SendReply:
    """Reply over ZeroMQ. `droppable`: progress that a later reply supersedes."""

    identity: bytes
    reply: Reply
    droppable: bool = False


@dataclass(frozen=True)
class AnswerSession:
    """Answer over a session's socket, with the fd of `segment` unless it is None."""

    session: int
    answer: SessionAnswer
    segment: int | None = None


@dataclass(frozen=True)
class CloseSession:
    session: int


@dataclass(frozen=True)
class AllocateSegment:
    """Allocate a segment, then call `on_allocated` or `on_allocation_failed` of the core."""

    session: int
    nbytes: int


@dataclass(frozen=True)
class AdoptSegment:
    """Adopt the segment that came with the request being handled; then as AllocateSegment."""

    session: int


@dataclass(frozen=True)
class RetainSegment:
    segment: int


@dataclass(frozen=True)
class ReleaseSegment:
    segment: int


@dataclass(frozen=True)
class SubmitJob:
    """Submit to the engine, which holds the segments of `spec` from then on.

    The engine's answer goes to `on_engine_reply` of the core, each state to `on_job_state`, and
    prepared output files to `on_outputs_prepared`. `readmission`: of a job that an earlier daemon
    has accepted, and started `attempts` times.
    """

    ticket: int
    spec: JobSpec
    number: int
    attempts: int = 0
    readmission: Readmission | None = None


@dataclass(frozen=True)
class CancelJob:
    job: int


@dataclass(frozen=True)
class CancelJobs:
    """Call `on_cancel` of the core for these jobs, a few per turn of the loop; then `reply`."""

    jobs: tuple[int, ...]
    reply: SendReply


@dataclass(frozen=True)
class ChangeQueue:
    """Change a waiting job as `change` says, then call `on_queue_changed` of the core."""

    identity: bytes
    number: int
    change: QueueChange


@dataclass(frozen=True)
class AlterJob:
    """Give a waiting job what was decided about it before the engine had it."""

    job: int
    priority: int
    is_held: bool


@dataclass(frozen=True)
class ReadPositions:
    """Look up where these jobs wait, then call `on_positions` of the core."""

    identity: bytes
    number: int
    jobs: tuple[int, ...]


@dataclass(frozen=True)
class ReadHistory:
    """Look up jobs in the journal, then call `on_history` of the core."""

    identity: bytes
    number: int
    request: History


@dataclass(frozen=True)
class StopDaemon:
    """Begin to stop; unless `now`, as soon as no job runs or could start."""

    now: bool


@dataclass(frozen=True)
class ExpectJob:
    """Tell the engine that a job of an earlier daemon will come: others may run after it."""

    job: int


@dataclass(frozen=True)
class RememberJob:
    """Tell the engine how a job of an earlier daemon ended: others may run after it."""

    job: int
    state: Done | Failed


@dataclass(frozen=True)
class AcceptanceWritten:
    """A job's acceptance is in the journal, or can't be written."""

    ticket: int


@dataclass(frozen=True)
class PublishingWritten:
    """The journal knows the output files that a job is about to name, or can't be written."""

    ticket: int


@dataclass(frozen=True)
class EndWritten:
    """A job's end is in the journal, or can't be written."""

    ticket: int


@dataclass(frozen=True)
class NumbersWritten:
    """A block of job numbers is reserved in the journal, or that can't be written."""

    record: NumbersReserved


@dataclass(frozen=True)
class ChangeWritten:
    """A waiting job's new priority or hold is in the journal, so that `reply` is true; or not."""

    reply: SendReply


Written = AcceptanceWritten | PublishingWritten | EndWritten | NumbersWritten | ChangeWritten


@dataclass(frozen=True)
class WriteJournal:
    """Write records to the journal, then call ``on_written(then, error)`` of the core.

    Without `then` the core isn't called: the journal keeps the records until it can write them.
    """

    records: tuple[Record, ...]
    then: Written | None = None
    urgent: bool = False


@dataclass(frozen=True)
class ContinuePublishing:
    """Let a job name its output files, or fail it with `error`."""

    job: int
    error: HetschedError | None = None


@dataclass(frozen=True)
class ListDevices:
    """Answer request `number` of `identity` with the engine's devices."""

    identity: bytes
    number: int
    probe: bool = False


@dataclass(frozen=True)
class CollectMetrics:
    """Answer request `number` of `identity` with `metrics` and those of the process."""

    identity: bytes
    number: int
    metrics: tuple[Metric, ...]
    uptime: float


@dataclass(frozen=True)
class CollectOverview:
    """Answer request `number` of `identity` with `overview`, completed by devices and memory."""

    identity: bytes
    number: int
    overview: DaemonOverview


@dataclass(frozen=True)
class ExplainJob:
    """Answer request `number` of `identity` with a job's explanation, or why there is none."""

    identity: bytes
    number: int
    job: int


@dataclass(frozen=True)
class TrimArena:
    """Return free segments to the system."""


Command = (
    SendReply
    | AnswerSession
    | CloseSession
    | AllocateSegment
    | AdoptSegment
    | RetainSegment
    | ReleaseSegment
    | TrimArena
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
