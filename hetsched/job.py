"""Records of jobs: the request, where its arrays are, its state and report. No behaviour."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hetsched.errors import Cancelled, ErrorRecord

SCHEMA = "hetsched.job/1"


class ArenaRef(msgspec.Struct, frozen=True, tag="arena"):
    """An array in a segment of the arena, C-contiguous; `dtype` is NumPy's name for it."""

    segment: int
    shape: tuple[int, ...]
    dtype: str
    offset: int = 0


class FileRef(msgspec.Struct, frozen=True, tag="file"):
    """A ``.npy`` file, by absolute path."""

    path: str


class Generated(msgspec.Struct, frozen=True, tag="generated"):
    """An array that the device processes generate from the job's seed, into the arena."""


InputRef = ArenaRef | FileRef | Generated


class ArenaOut(msgspec.Struct, frozen=True, tag="arena-out"):
    """The result stays in the arena: in the caller's array, or (None) in a segment of the job."""

    into: ArenaRef | None = None


class FileOut(msgspec.Struct, frozen=True, tag="file-out"):
    """The result becomes a ``.npy`` file, by absolute path."""

    path: str
    force: bool = False


OutputRef = ArenaOut | FileOut


Condition = Literal["ok", "any", "fail"]
"""Outcome of the earlier job that a Dependency asks for; "fail": it failed or was cancelled."""


class Dependency(msgspec.Struct, frozen=True):
    """The job runs after job number `job` has ended, if that ended as `condition` says."""

    job: int
    condition: Condition = "ok"


BalanceMethod = Literal["auto", "functional", "constant", "imbalance-factor", "none"]
"""How the rows of an iterative job are shared out while it runs; "none": its first split stays."""
WarmUp = Literal["", "dfpa"]
"""What comes before the first iteration: nothing, or short benchmarks (DFPA)."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a user submits. `hetsched/queue_options.py` checks the fields from `priority` on.

    `hetsched/iteration_options.py` checks those from `balance` on, for iterative jobs only.

    `inputs` and `outputs` are keyed by array name; "" stands for the only one. Inputs that aren't
    named are Generated, outputs that aren't named are ArenaOut().
    """

    workload: str
    params: dict[str, Any]
    inputs: dict[str, InputRef] = {}
    outputs: dict[str, OutputRef] = {}
    devices: tuple[str, ...] = ()
    memory_limit: int | None = None
    verify: bool = False
    seed: int = 0
    priority: int = 0
    """Of two jobs that wait, the one with the larger number runs first."""
    id: str = ""
    """The client's own name for this submission; a second one with this name adds no job."""
    label: str = ""
    after: tuple[Dependency, ...] = ()
    retries: int = 0
    """How often a job that failed, perhaps only this time, is run again."""
    timeout: float | None = None
    """Seconds that each attempt may run."""
    deadline: float | None = None
    """Seconds since the epoch: a job that hasn't ended by then fails."""
    hold: bool = False
    """The job waits until it is released."""
    measure: dict[str, str] = {}
    """Device -> the variant to measure it with: all devices get equal shares, in as few chunks as
    their memory allows. Empty: the job is planned for speed."""
    balance: BalanceMethod = "auto"
    warm_up: WarmUp = ""
    checkpoint: str = ""
    """Absolute path of the file to which the state is saved now and then; "": none."""
    every: float | None = None
    """Seconds between two checkpoints; None: the default."""
    resume: str = ""
    """Absolute path of the checkpoint to start from; "": none."""


class IterationSeconds(msgspec.Struct, frozen=True):
    """The phases of a device's iterations, seconds in sum (NEC, section 6.1)."""

    compute: float = 0.0
    transfer: float = 0.0
    wait: float = 0.0
    """For the other devices."""
    converge: float = 0.0
    """Combining reductions and testing convergence."""
    save: float = 0.0
    """Saving rows for the loss of a device with its own memory."""


class DeviceReport(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one device in one run; `chunks` in units, times in seconds."""

    device: str
    kind: str
    variant: str
    share: int
    seconds: float
    chunks: tuple[int, ...]
    predicted_seconds: float | None = None
    copy_in_seconds: float = 0.0
    compute_seconds: float = 0.0
    copy_out_seconds: float = 0.0
    late: int = 0
    phases: IterationSeconds | None = None
    """Of an iterative job; `share` are the rows at its end, `chunks` is empty."""


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """The object that `--json` prints. `seconds`: first chunk's start to last chunk's end."""

    schema: str = SCHEMA
    job: int
    state: str
    workload: str
    load: int
    seconds: float | None = None
    predicted_seconds: float | None = None
    spread: float | None = None
    devices: tuple[DeviceReport, ...] = ()
    verified: bool | None = None
    max_error: float | None = None
    params: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    outputs: dict[str, str] = {}
    """Output name -> path, for those that became files."""
    error: ErrorRecord | None = None
    iterations: int | None = None
    """Complete iterations of an iterative job; None for other jobs."""
    residual: float | None = None
    """After the last iteration; None: the workload has no such number."""
    converged: bool | None = None
    """None: nothing was to converge."""
    moves: int | None = None
    """How often rows moved between devices."""
    continued_after: int | None = None
    """The iteration of the checkpoint from which the job continued; 0: it began at the start."""


class DeviceProgress(msgspec.Struct, frozen=True):
    device: str
    done: int
    share: int


class Queued(msgspec.Struct, frozen=True, tag="queued"):
    """`ahead` jobs run or wait before this one; `reason`: what it waits for ("held", "after 12",
    "priority", "resources"), or why it waits again; `failures`: attempts that have failed."""

    job: int
    ahead: int
    reason: str = ""
    failures: int = 0


class Running(msgspec.Struct, frozen=True, tag="running"):
    """`stage`: "generating", "planning", "computing", "verifying"; `text`: its slow step.

    Of an iterative job `devices` have their present rows; `iteration`: the last complete one.
    """

    job: int
    stage: str
    devices: tuple[DeviceProgress, ...] = ()
    predicted_seconds: float | None = None
    text: str = ""
    iteration: int | None = None
    max_iterations: int | None = None
    residual: float | None = None
    iterations_per_second: float | None = None


class Done(msgspec.Struct, frozen=True, tag="done"):
    """`results`: output name -> its array in the arena; outputs that became files have none.

    `lost`: why there are no results although there were; "" if there are.
    """

    job: int
    report: JobReport
    results: dict[str, ArenaRef] = {}
    lost: str = ""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """`error.code` is 130 if the job was cancelled.

    `results`: of an iterative job that hasn't converged; as those of Done.
    """

    job: int
    report: JobReport
    error: ErrorRecord
    results: dict[str, ArenaRef] = {}


JobState = Queued | Running | Done | Failed
"""The four states as tagged records; sent to those who follow a job."""


def ended(state: JobState) -> bool:
    return isinstance(state, Done | Failed)


STATES = ("queued", "held", "running", "done", "failed", "cancelled")
"""Words for the states of a job; a held one is queued, too."""


def words(state: JobState) -> tuple[str, ...]:
    """Return the words of STATES that describe `state`, the most general one first."""
    match state:
        case Queued(reason="held"):
            return ("queued", "held")
        case Queued():
            return ("queued",)
        case Running():
            return ("running",)
        case Done():
            return ("done",)
        case Failed():
            return ("cancelled",) if state.error.code == Cancelled.code else ("failed",)
