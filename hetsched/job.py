"""Records of jobs: the request with its limits, where its arrays are, its state and report."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta
from msgspec.structs import astuple, replace

from hetsched.errors import Cancelled, ErrorRecord, UsageError
from hetsched.units import MAX_SECONDS, NUMBER_LIMIT, quoted

T = TypeVar("T")

SCHEMA = "hetsched.job/1"

MIN_PRIORITY, MAX_PRIORITY = -20, 19
MAX_ITERATIONS = 2_000_000_000
"""Devices count iterations in 32 bits."""
MAX_RETRIES = 100
"""More would hide a job that always fails."""
MAX_DEPENDENCIES = 100
MAX_TEXT = 128
"""Characters of a label or an id: they are columns of tables."""
MAX_DATE = 253402300799.0
"""Seconds since the epoch: the last that a calendar date (year 9999) can show."""
CHECKPOINT_SECONDS = 30.0
"""Between two checkpoints, unless the job says otherwise."""

# Text that UTF-8 can encode; of a label also on one line, without characters that reorder it.
_UTF8 = r"^[^\ud800-\udfff]*\Z"
_LINE = r"^[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]*\Z"
_ID = r"^([A-Za-z0-9][A-Za-z0-9._:@/+-]*)?\Z"
_PATH = r"^(/[^\x00\ud800-\udfff]*)?\Z"


def _integer(low: int, high: int) -> Meta:
    return Meta(ge=low, le=high, description=f"an integer from {low} to {high}")


# `description` completes the message for a wrong value: "priority: 20 should be an integer ...".
Text = Annotated[str, Meta(pattern=_UTF8, description="text that UTF-8 can encode")]
WorkloadName = Annotated[
    str, Meta(min_length=1, pattern=_UTF8, description="a workload's name, or module:qualname")
]
DeviceNames = Annotated[
    tuple[Text, ...], Meta(description='a str like "cpu,gpu0", or a sequence of names')
]
Bytes = Annotated[
    int,
    Meta(ge=1, le=NUMBER_LIMIT - 1, description='bytes from 1 to 2**63-1, or a str like "256MiB"'),
]
Seed = Annotated[int, Meta(ge=0, le=NUMBER_LIMIT - 1, description="an integer from 0 to 2**63-1")]
Priority = Annotated[int, _integer(MIN_PRIORITY, MAX_PRIORITY)]
Retries = Annotated[int, _integer(0, MAX_RETRIES)]
Iterations = Annotated[int, _integer(0, MAX_ITERATIONS)]
Id = Annotated[
    str,
    Meta(
        max_length=MAX_TEXT,
        pattern=_ID,
        description=f"at most {MAX_TEXT} letters, digits and . _ : @ / + -, starting with a"
        " letter or digit",
    ),
]
Label = Annotated[
    str,
    Meta(
        max_length=MAX_TEXT,
        pattern=_LINE,
        description=f"text of at most {MAX_TEXT} characters that can be printed on a line",
    ),
]
JobNumber = Annotated[
    int, Meta(ge=1, le=NUMBER_LIMIT - 1, description="a job's number, from 1 to 2**63-1")
]
Seconds = Annotated[
    float,
    Meta(
        gt=0,
        le=MAX_SECONDS,
        description=f'seconds above 0 and at most {MAX_SECONDS:g}, or a str like "10m"',
    ),
]
Date = Annotated[
    float, Meta(gt=0, le=MAX_DATE, description="a datetime, or seconds since the epoch")
]
CheckpointPath = Annotated[
    str, Meta(pattern=_PATH, description="the absolute path of a checkpoint")
]


class ArenaRef(msgspec.Struct, frozen=True, tag="arena"):
    """An array in a segment of the arena, C-contiguous; `dtype` is NumPy's name for it.

    `lent`: the segment is the array, in memory of the engine's own process, with any strides.
    """

    segment: int
    shape: tuple[int, ...]
    dtype: str
    offset: int = 0
    lent: bool = False


class FileRef(msgspec.Struct, frozen=True, tag="file"):
    """A file with an array, by absolute path, as `hetsched.paths.split_path` reads it."""

    path: str


InputRef = ArenaRef | FileRef


class ArenaOut(msgspec.Struct, frozen=True, tag="arena-out"):
    """The result stays in the arena: in the caller's array, or (None) in a segment of the job."""

    into: ArenaRef | None = None


class FileOut(msgspec.Struct, frozen=True, tag="file-out"):
    """The result becomes a file, in the format that its absolute path tells."""

    path: str
    force: bool = False


OutputRef = ArenaOut | FileOut


Condition = Literal["ok", "any", "fail"]
"""Outcome of the earlier job that a Dependency asks for; "fail": it failed or was cancelled."""


class Dependency(msgspec.Struct, frozen=True):
    """The job runs after job number `job` has ended, if that ended as `condition` says."""

    job: JobNumber
    condition: Condition = "ok"


def parse_dependency(text: str) -> Dependency:
    """Parse "12", "12:ok", "12:any" or "12:fail". Raises UsageError."""
    number, colon, condition = text.strip().partition(":")
    if not re.fullmatch(r"\d{1,19}", number, re.ASCII) or not 0 < int(number) < NUMBER_LIMIT:
        raise UsageError(
            f"after: {quoted(text)} should be a job number, with or without :ok, :any or :fail"
        )
    match condition:
        case "ok" | "any" | "fail":
            return Dependency(int(number), condition)
        case "" if not colon:
            return Dependency(int(number))
    conditions = ", ".join(get_args(Condition))
    raise UsageError(f"after: {quoted(text)} has an unknown condition; choose from: {conditions}")


Schedule = Literal["best", "ring", "multi-installment", "factoring"]
"""How a device with a link cuts its share into chunks: by the plan found to be the fastest, in a
ring of slots, by the steps of Ilic & Sousa, or by halving. Cores copy nothing."""
SCHEDULES: tuple[str, ...] = get_args(Schedule)

BalanceMethod = Literal["auto", "functional", "constant", "imbalance-factor", "none"]
"""How the rows of an iterative job are shared out while it runs; "none": its first split stays."""
WarmUp = Literal["", "dfpa"]
"""What comes before the first iteration: nothing, or short benchmarks (DFPA)."""
BALANCE_METHODS: tuple[str, ...] = get_args(BalanceMethod)
WARM_UPS: tuple[str, ...] = tuple(name for name in get_args(WarmUp) if name)


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a user submits. The limits hold for decoded ones and those made by `checked`.

    `inputs` and `outputs` are keyed by array name; "" stands for the only one. Device processes
    generate the inputs that aren't named from the job's seed, into the arena; outputs that aren't
    named are ArenaOut(). Only iterative jobs have the fields from `balance` on.
    """

    workload: WorkloadName
    params: dict[str, Any]
    inputs: dict[str, InputRef] = {}
    outputs: dict[str, OutputRef] = {}
    devices: DeviceNames = ()
    memory_limit: Bytes | None = None
    verify: Annotated[bool, Meta(description="True or False")] = False
    seed: Seed = 0
    priority: Priority = 0
    """Of two jobs that wait, the one with the larger number runs first."""
    id: Id = ""
    """The client's own name for this submission; a second one with this name adds no job."""
    label: Label = ""
    after: Annotated[
        tuple[Dependency, ...],
        Meta(max_length=MAX_DEPENDENCIES, description=f"at most {MAX_DEPENDENCIES} jobs"),
    ] = ()
    retries: Retries = 0
    """How often a job that failed, perhaps only this time, is run again."""
    timeout: Seconds | None = None
    """Seconds that each run may take."""
    deadline: Date | None = None
    """Seconds since the epoch: a job that hasn't ended by then fails."""
    hold: Annotated[bool, Meta(description="True or False")] = False
    """The job waits until it is released."""
    measure: dict[str, str] = {}
    """Device -> the variant to measure it with: all devices get equal shares, in as few chunks as
    their memory allows. Empty: the job is planned for speed."""
    schedule: Annotated[Schedule, Meta(description=f"one of {', '.join(SCHEDULES)}")] = "best"
    balance: Annotated[BalanceMethod, Meta(description=f"one of {', '.join(BALANCE_METHODS)}")] = (
        "auto"
    )
    warm_up: Annotated[WarmUp, Meta(description=f"one of {', '.join(WARM_UPS)}, or none")] = ""
    checkpoint: CheckpointPath = ""
    """Absolute path of the file to which the state is saved now and then; "": none."""
    every: Seconds | None = None
    """Seconds between two checkpoints; None: the default."""
    resume: CheckpointPath = ""
    """Absolute path of the checkpoint to start from; "": none."""
    hold_every: Iterations = 0
    """Iterations after which the job is held until it is released, with its arrays in view; 0: it
    never is."""

    def __post_init__(self) -> None:
        if self.every is not None and not self.checkpoint:
            raise ValueError("every: there is no checkpoint; give its file, too")
        once = {
            name: getattr(self, name) for name in ("verify", "retries", "checkpoint", "resume")
        }
        if self.hold_every and any(once.values()):
            name = next(name for name, value in once.items() if value)
            raise ValueError(f"hold_every: not with {name}: arrays may change while it is held")


def checked(kind: type[T], **fields: Any) -> T:
    """Make a `kind`, a record with limits, of `fields`.

    Raises UsageError: the first field that is wrong, its value and what it should be.
    """
    try:
        return msgspec.convert(fields, kind)
    except (ValueError, OverflowError) as error:  # the latter of integers with 4,300 digits
        text = str(error)
    if match := re.search(r"at `\$\.(\w+)", text):  # such as "$.after[0].job"
        name = match[1]
        hint = get_type_hints(kind, include_extras=True)[name]
        wanted = next(_descriptions(hint), "of another type")
        raise UsageError(f"{name}: {quoted(fields.get(name))} should be {wanted}")
    for name, value in fields.items():
        if isinstance(value, int) and not -NUMBER_LIMIT <= value < NUMBER_LIMIT:
            text = f"{name}: {quoted(value)}; the maximum is 63"
            break
    raise UsageError(text)


def _descriptions(hint: Any) -> Iterator[str]:
    """Yield what the Meta of a field says of valid values."""
    for part in (*getattr(hint, "__metadata__", ()), *get_args(hint)):
        if isinstance(part, Meta) and part.description:
            yield part.description
        elif not isinstance(part, Meta):
            yield from _descriptions(part)


class IterationSeconds(msgspec.Struct, frozen=True):
    """The phases of a device's iteration, or of several in sum (NEC, section 6.1)."""

    compute: float = 0.0
    """Kernels."""
    transfer: float = 0.0
    """Copies between host and device."""
    wait: float = 0.0
    """For the other devices."""
    converge: float = 0.0
    """Combining reductions and testing convergence."""
    save: float = 0.0
    """Saving rows, with the others, for the loss of a device with its own memory."""

    @property
    def busy(self) -> float:
        """Without waits and saves."""
        return self.compute + self.transfer + self.converge

    @property
    def total(self) -> float:
        return self.busy + self.wait + self.save

    def plus(self, other: IterationSeconds) -> IterationSeconds:
        return IterationSeconds(*map(operator.add, astuple(self), astuple(other)))

    def times(self, factor: float) -> IterationSeconds:
        return IterationSeconds(*(factor * each for each in astuple(self)))


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
    """The object that `--json` prints.

    `seconds`: the kernels' time, from the first chunk's start to the last chunk's end (of an
    iterative job: of all iterations). `whole_seconds`: the whole time, from the job's turn to its
    end, with opening files, planning and preparing.
    """

    schema: str = SCHEMA
    job: int
    state: str
    workload: str
    load: int
    seconds: float | None = None
    whole_seconds: float | None = None
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


class Held(msgspec.Struct, frozen=True):
    """A job that is held after `iteration`, which took its devices `seconds` up to there.

    `results`: output name -> its present array in the arena, from which the job goes on.
    """

    iteration: int
    seconds: float
    results: dict[str, ArenaRef]


class Queued(msgspec.Struct, frozen=True, tag="queued"):
    """`ahead` jobs run or wait before this one; `reason`: what it waits for ("held", "after 12",
    "priority", "resources"), or why it waits again; `failures`: runs that have failed; `held`: of
    a job that has been held between its iterations, the last time."""

    job: int
    ahead: int
    reason: str = ""
    failures: int = 0
    held: Held | None = None


class Running(msgspec.Struct, frozen=True, tag="running"):
    """`stage`: "preparing", "generating", "computing", "verifying"; `text`: its slow step.

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


Ended = Done | Failed
JobState = Queued | Running | Ended
"""The four states as tagged records; sent to those who follow a job."""


Outcome = Literal["done", "failed", "cancelled"]


def outcome(error: ErrorRecord | None) -> Outcome:
    """Return how a job ended, by the error that it ended with, if any."""
    if error is None:
        return "done"
    return "cancelled" if error.code == Cancelled.code else "failed"


def brief(state: JobState) -> JobState:
    """Return `state` without the part of its report about each device."""
    if isinstance(state, Ended):
        return replace(state, report=replace(state.report, devices=()))
    return state


StateWord = Literal["queued", "held", "running", "done", "failed", "cancelled"]
"""A word for the state of a job; a held one is queued, too."""
STATES: tuple[StateWord, ...] = get_args(StateWord)
States = Annotated[
    tuple[StateWord, ...], Meta(description=f"a sequence of states: {', '.join(STATES)}")
]


def words(state: JobState) -> tuple[StateWord, ...]:
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
            return (outcome(state.error),)


# ---- the files and the segments of shared memory that a job names


def arena_refs(spec: JobSpec) -> list[ArenaRef]:
    """Return the inputs and the caller's own outputs that are in shared memory."""
    outs = [out.into for out in spec.outputs.values() if isinstance(out, ArenaOut)]
    return [ref for ref in (*spec.inputs.values(), *outs) if isinstance(ref, ArenaRef)]


def has_files(spec: JobSpec) -> bool:
    """Return whether an input or output of `spec` is a file, or it names a checkpoint."""
    refs = (*spec.inputs.values(), *spec.outputs.values())
    has_arrays = any(isinstance(ref, FileRef | FileOut) for ref in refs)
    return has_arrays or bool(spec.checkpoint or spec.resume)


def caller_outputs(spec: JobSpec) -> set[int]:
    """Return the segments for results that belong to the caller rather than to the job."""
    return {
        out.into.segment
        for out in spec.outputs.values()
        if isinstance(out, ArenaOut) and out.into is not None
    }


def input_shapes(spec: JobSpec) -> dict[str, str]:
    """Return e.g. {"A": "512x512 float64"} for the inputs in shared memory."""
    return {
        name: f"{'x'.join(map(str, ref.shape)) or 'scalar'} {ref.dtype}"
        for name, ref in spec.inputs.items()
        if isinstance(ref, ArenaRef)
    }


def is_same_request(one: JobSpec, other: JobSpec) -> bool:
    """Return whether two requests are the same but for what changes at the next daemon.

    That are the segments that hold their arrays, and the numbers of volatile jobs before them.
    """
    return one == other or _unnumbered(one) == _unnumbered(other)


def _unnumbered(spec: JobSpec) -> JobSpec:
    inputs = {
        name: replace(ref, segment=0) if isinstance(ref, ArenaRef) else ref
        for name, ref in spec.inputs.items()
    }
    outputs = {
        name: ArenaOut(replace(out.into, segment=0))
        if isinstance(out, ArenaOut) and out.into
        else out
        for name, out in spec.outputs.items()
    }
    after = tuple(replace(dependency, job=0) for dependency in spec.after)
    return replace(spec, inputs=inputs, outputs=outputs, after=after)
