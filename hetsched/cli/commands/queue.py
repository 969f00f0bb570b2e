"""Commands that change jobs of the daemon, wait for them or forget them."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetsched.cli import flags
from hetsched.cli.app import command
from hetsched.cli.flags import (
    Force,
    JobNumbers,
    Json,
    SomeJobNumbers,
    argument,
    integers,
    option,
    switch,
)
from hetsched.cli.jobs import error_of, event_detail, word
from hetsched.cli.progress import watch
from hetsched.cli.terminal import flush_lines, note, out, out_json
from hetsched.client.control import Control
from hetsched.errors import HetschedError, UsageError, WaitTimeout
from hetsched.job import MAX_PRIORITY, MIN_PRIORITY, Ended, JobState
from hetsched.units import counted, parse_time

if TYPE_CHECKING:
    from hetsched.client.job import Job

ENDED_STATES = ("done", "failed", "cancelled")


def change_each(jobs: Iterable[int], change: Callable[[Control, int], str]) -> None:
    """Call `change` for each job once and print the line that it returns, or its error.

    A job that can't be changed doesn't keep the others from it.

    Raises HetschedError (the error of a single job), typer.Exit (with the code of the first of
    several jobs' errors).
    """
    numbers = list(dict.fromkeys(jobs))
    codes = []
    with Control() as daemon:
        for job in numbers:
            try:
                out(change(daemon, job))
                flush_lines()
            except HetschedError as error:
                if len(numbers) == 1:
                    raise
                note(f"error: {error}")
                codes.append(error.code)
    if codes:
        raise typer.Exit(codes[0])


def hold(jobs: JobNumbers) -> None:
    def change(daemon: Control, job: int) -> str:
        return f"held {job}" if daemon.hold(job).is_changed else f"{job} is already held"

    change_each(jobs, change)


def release(jobs: JobNumbers) -> None:
    def change(daemon: Control, job: int) -> str:
        return f"released {job}" if daemon.release(job).is_changed else f"{job} isn't held"

    change_each(jobs, change)


def _prioritize(
    jobs: JobNumbers,
    priority: Annotated[
        int,
        argument(
            "N",
            f"{MIN_PRIORITY} to {MAX_PRIORITY}; larger runs first.",
            integers(MIN_PRIORITY, MAX_PRIORITY),
        ),
    ],
) -> None:
    def change(daemon: Control, job: int) -> str:
        if daemon.prioritize(job, priority).is_changed:
            return f"priority of {job}: {priority}"
        return f"{job} already has priority {priority}"

    change_each(jobs, change)


prioritize = command(  # a negative number isn't an option
    "prioritize", _prioritize, "Change the priority of waiting jobs.", ignore_unknown_options=True
)


def retry(
    jobs: JobNumbers,
    force: Force = False,
    parsable: Annotated[
        bool, switch("Print nothing but the new job numbers.", "--parsable")
    ] = False,
) -> None:
    def submit_again(daemon: Control, job: int) -> str:
        number = daemon.retry(job, force=force)
        return str(number) if parsable else f"submitted {number}: job {job} again"

    change_each(jobs, submit_again)


def cancel(
    jobs: SomeJobNumbers = None,
    everything: Annotated[bool, switch("Stop all jobs that haven't ended.", "--all")] = False,
) -> None:
    if bool(jobs) == everything:
        raise UsageError("give the numbers of jobs, or --all for all of them")

    def change(daemon: Control, job: int) -> str:
        state = daemon.show(job)
        if isinstance(state, Ended):
            return f"job {job} has already ended: {word(state)}"
        daemon.cancel(job)
        return f"cancelled {job}"

    if jobs:
        change_each(jobs, change)
        return
    with Control() as daemon:
        cancelled = daemon.cancel_all()
    for job in cancelled:
        out(f"cancelled {job}")
    if not cancelled:
        out("no jobs to cancel")


def clean(
    older: Annotated[
        float,
        option(
            "TIME", "Only jobs that ended at least this long ago: 7d.", parse_time, shown=False
        ),
    ] = 0.0,
    state: Annotated[list[Any] | None, flags.states(ENDED_STATES)] = None,
    json: Json = False,
) -> None:
    with Control() as daemon:
        jobs = daemon.clean(flags.joined(state), older)
    if json:
        out_json({"schema": "hetsched.forgotten/1", "jobs": jobs})
    else:
        out(f"forgot {counted(len(jobs), 'job')}")


def wait(
    jobs: JobNumbers,
    timeout: Annotated[
        Any,
        option(
            "TIME", "Give up after e.g. 5m (exit code 124).", lambda text: (parse_time(text), text)
        ),
    ] = None,
    json: Json = False,
) -> None:
    with Control() as daemon:
        futures = [daemon.job(number) for number in dict.fromkeys(jobs)]
        if timeout is not None:
            _wait_all(futures, *timeout)
        errors = [_outcome(job, json) for job in futures]
    for error in errors:
        if error is not None:
            raise error


def _wait_all(jobs: list[Job], seconds: float, text: str) -> None:
    """Raise WaitTimeout if a job hasn't ended in time."""
    _, pending = concurrent.futures.wait(jobs, timeout=seconds)
    numbers = ", ".join(str(job.id) for job in jobs if job in pending)
    if len(pending) == 1:
        raise WaitTimeout(f"after {text}: job {numbers} hasn't ended; it continues")
    if pending:
        raise WaitTimeout(f"after {text}: jobs {numbers} haven't ended; they continue")


def _outcome(job: Job, json: bool) -> HetschedError | None:
    state = watch(job, from_start=False)
    if json and isinstance(state, Ended):
        out_json(state.report)
    return error_of(state)


def follow(jobs: SomeJobNumbers = None, json: Json = False) -> int:
    try:
        _follow(jobs or (), json)
    except KeyboardInterrupt:  # the way to end it, so nothing to report
        return 130
    return 0


def _follow(jobs: Sequence[int], json: bool) -> None:
    """Print events on the client's thread: while that blocks, nothing is read from the daemon."""
    failed: Future[None] = Future()
    last = 0

    def on_event(sequence: int, state: JobState) -> None:
        nonlocal last
        missing = sequence - last - 1 if sequence > last else 0
        last = sequence
        try:
            if missing:
                events = "event was" if missing == 1 else "events were"
                note(f"{missing} {events} lost: this reader is too slow")
            _print_event(sequence, state, json)
            flush_lines()
        except Exception as error:  # such as BrokenPipeError
            if not failed.done():
                failed.set_exception(error)

    with Control() as daemon:
        follower = daemon.events(on_event, jobs)
        if not jobs:
            note("following all jobs; Ctrl-C ends it")
        ended, _ = concurrent.futures.wait([follower.done, failed], return_when=FIRST_COMPLETED)
        for future in ended:
            future.result()


def _print_event(sequence: int, state: JobState, json: bool) -> None:
    if not json:
        clock = time.strftime("%H:%M:%S")
        out(f"{clock} {word(state)} {state.job} {event_detail(state)}".rstrip())
        return
    event = {"schema": "hetsched.event/1", "sequence": sequence, "job": state.job}
    out_json({**event, "state": word(state), "detail": event_detail(state)})
