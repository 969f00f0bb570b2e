"""`hetsched run`, `submit`, `plan` and `explain`: one job, with its plan as text or picture."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated

import msgspec.json

from hetsched.cli import flags, interrupts, terminal
from hetsched.cli.functions import run_map, run_reduce, submit_map
from hetsched.cli.hosts import run_on_hosts
from hetsched.cli.jobs import finish, next_steps
from hetsched.cli.progress import stop, watch
from hetsched.cli.workloads import ITERATIVE, workload_command
from hetsched.errors import Cancelled, HetschedError, UsageError
from hetsched.job import Ended, Failed, JobSpec, JobState

if TYPE_CHECKING:
    from hetsched.explain import Explanation

PLANNED = ("input", "output", "devices", "memory_limit", "schedule")
COMPUTED = (*PLANNED, "verify", "seed", "priority", *ITERATIVE, "retries", "timeout")
MAPPED = ("output", "devices", "memory_limit", "priority", "retries", "timeout")
QUEUED = ("label", "id", "after", "deadline", "hold")

GRACE_SECONDS = 1.0
"""Seconds after Ctrl-C in which a second one cancels the job; also the time to wait for the number
of a job that has just been sent. Arbitrary: a double press."""


@workload_command(*COMPUTED, more={"map": run_map, "reduce": run_reduce})
def run(
    spec: JobSpec,
    force: flags.Force = False,
    json: flags.Json = False,
    trace: flags.Trace = None,
    plot: flags.Plot = None,
    config: flags.ConfigName = None,
    cluster: flags.Cluster = None,
    insecure: flags.Insecure = False,
) -> None:
    files = Drawings(trace, plot, force, cluster)
    if cluster is not None:
        run_on_hosts(spec, cluster, insecure, force, json)
        return
    with interrupts.engine(config) as local:
        job = local.run(spec)
        try:
            state = watch(job, is_local=True)
        except KeyboardInterrupt:
            state = stop(job, local)
        files.write(job.explain, state)
    following = f"hetsched models shows the measured speeds; hetsched run {spec.workload} --help:"
    following += " all flags"
    if not spec.outputs:
        following = "--output FILE saves the result, --input FILE reads your own data"
    elif not spec.verify:
        following = "--verify checks every unit"
    finish(state, json, lambda report: f"next: {following}")


@workload_command(*COMPUTED, *QUEUED, more={"map": submit_map(*MAPPED, *QUEUED)})
def submit(
    spec: JobSpec,
    *,
    force: flags.Force = False,
    json: flags.Json = False,
    detach: Annotated[
        bool, flags.switch("Print the job number and exit.", "--detach", "--no-wait")
    ] = False,
    parsable: Annotated[
        bool, flags.switch("Print nothing but the job number and exit.", "--parsable")
    ] = False,
    trace: flags.Trace = None,
    plot: flags.Plot = None,
    cluster: flags.Cluster = None,
    insecure: flags.Insecure = False,
) -> None:
    detach = detach or parsable
    if parsable and json:
        raise UsageError("--parsable and --json are two formats of the same; give one of them")
    if detach and (trace is not None or plot is not None):
        raise UsageError(
            "--detach doesn't wait for the job: omit --trace and --plot, and use"
            " `hetsched explain ID` when it has ended"
        )
    files = Drawings(trace, plot, force, cluster)
    if cluster is not None:
        if detach:
            raise UsageError("--detach: a job over hosts runs as long as this command does")
        run_on_hosts(spec, cluster, insecure, force, json)
        return
    from hetsched.client.control import Control

    with Control() as daemon:
        number: Future[int] = Future()

        def note_number(state: JobState) -> None:
            if not number.done():
                number.set_result(state.job)

        try:
            job = daemon.submit_spec(spec, follow=note_number)
        except KeyboardInterrupt:
            raise _detached(number, daemon.cancel) from None
        if detach:
            accepted = {"job": job.id, "durability": job.durability}
            line = str(job.id) if parsable else f"submitted {job.id}"
            terminal.answer(json, "accepted/1", accepted, [line])
            return
        try:
            state = watch(job)
        except KeyboardInterrupt:
            raise _detached(number, daemon.cancel) from None
        files.write(job.explain, state)
        names: Sequence[str] = tuple(state.results) if isinstance(state, Ended) else ()
        finish(state, json, lambda report: next_steps(job.id, report, names))


def _detached(job: Future[int], cancel: Callable[[int], None]) -> Cancelled:
    """Return what became of a job that may have been accepted."""
    try:
        number = job.result(GRACE_SECONDS)
    except TimeoutError:
        return Cancelled(
            "interrupted before the daemon confirmed the job;"
            " `hetsched status` shows whether it was accepted"
        )
    try:
        terminal.note(
            f"job {number} continues: `hetsched wait {number}` follows it,"
            f" `hetsched cancel {number}` or Ctrl-C again stops it"
        )
        time.sleep(GRACE_SECONDS)
    except KeyboardInterrupt:
        try:
            cancel(number)
        except HetschedError as error:
            return Cancelled(f"interrupted twice; job {number} wasn't cancelled: {error}")
        return Cancelled(f"interrupted twice; job {number} was cancelled")
    return Cancelled(f"interrupted; detached from job {number}, which continues")


@workload_command(*PLANNED)
def plan(
    spec: JobSpec,
    trace: flags.Trace = None,
    plot: flags.Plot = None,
    force: flags.Force = False,
    json: flags.Json = False,
    config: Annotated[
        str | None,
        flags.option("NAME|FILE", "A shipped configuration or profile, or a .toml file."),
    ] = None,
) -> None:
    files = Drawings(trace, plot, force)
    from hetsched.config import load, load_profile, profiles
    from hetsched.engine.preview import preview

    settings, source = load_profile(config) if config in profiles() else load(config)
    explanation = preview(spec, settings, source)
    files.write(lambda: explanation)
    _show(explanation, json)


def explain(
    job: flags.JobNumber,
    trace: flags.Trace = None,
    plot: flags.Plot = None,
    force: flags.Force = False,
    json: flags.Json = False,
) -> None:
    files = Drawings(trace, plot, force)
    from hetsched.client.control import Control

    with Control() as daemon:
        explanation = daemon.explain(job)
    files.write(lambda: explanation)
    _show(explanation, json)


def _show(explanation: Explanation, json: bool) -> None:
    if json:
        terminal.out_json(explanation)
        return
    from hetsched.explain.text import explanation_text

    terminal.out_lines(explanation_text(explanation, terminal.width()).splitlines())


class Drawings:
    """The files of --trace and --plot; checked before anything is computed.

    Raises UsageError, Unavailable, CantCreate (one of the files can't be written).
    """

    def __init__(
        self, trace: str | None, plot: str | None, force: bool, cluster: str | None = None
    ) -> None:
        self.trace, self.plot, self.force = trace, plot, force
        if cluster is not None and (trace is not None or plot is not None):
            raise UsageError("--trace and --plot aren't for --cluster")
        if plot is not None:
            terminal.check_plot(plot, force)
        if trace is not None:
            if not trace:
                raise UsageError("--trace '': the file name is missing")
            if trace == plot:
                raise UsageError(
                    f"--trace {trace!r}: --plot has the same file; give it another name"
                )
            from hetsched.store.output_files import check_output

            check_output(trace, (), "uint8", force=force)

    def write(self, explain: Callable[[], Explanation], state: JobState | None = None) -> None:
        """Write the files asked for. Raises as above, and IOFailure.

        `state`: of a job that has ended; its own error has priority over one in explaining it.
        """
        if self.trace is None and self.plot is None:
            return
        try:
            explanation = explain()
        except HetschedError:
            if isinstance(state, Failed):
                return
            raise
        if explanation.job is None and explanation.iterations is not None:
            name = explanation.workload
            raise UsageError(f"a plan of {name} has no iterations to draw; run it")
        is_empty = not any(each.plan or each.timeline for each in explanation.devices)
        if self.plot is not None and explanation.job is None and is_empty:
            raise UsageError("nothing was measured yet: no times to draw; run it first")
        if self.trace is not None:
            from hetsched.explain.trace import trace

            raw, hint = msgspec.json.encode(trace(explanation)), "https://ui.perfetto.dev"
            terminal.write_file("trace", self.trace, raw, self.force, f" (open it at {hint})")
        if self.plot is not None:
            from hetsched.plots import plot_job

            raw = plot_job(explanation, terminal.picture_format(self.plot))
            terminal.write_file("plot", self.plot, raw, self.force)
