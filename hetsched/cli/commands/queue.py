"""Commands about jobs of the daemon, and about the daemon: list, show, change, wait, end."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from hetsched import errors, units
from hetsched.cli import flags, interrupts, jobs, terminal
from hetsched.cli.app import command
from hetsched.cli.flags import Force, JobNumber, JobNumbers, Json, SomeJobNumbers, option, switch
from hetsched.cli.progress import sleeper, watch
from hetsched.cli.terminal import answer, note, out, out_json, out_lines
from hetsched.client.control import Control
from hetsched.errors import HetschedError, UsageError
from hetsched.job import SCHEMA, Done, Ended, Failed, JobState, Queued
from hetsched.paths import FORMAT_NAMES
from hetsched.text import parameters
from hetsched.transport import sockets

if TYPE_CHECKING:
    from hetsched.client.job import Job
    from hetsched.transport.messages import JobLine

CLEAR = "\x1b[H\x1b[2J"  # Moves the cursor to the top left and clears the screen
NEWEST = 20
NO_JOBS = "no jobs; try: hetsched submit fft --batch 256x512x512"
SORT_KEYS: dict[str, Callable[[JobLine], Any]] = {
    "job": lambda job: job.job,
    "priority": lambda job: job.priority,
    "state": lambda job: jobs.word(job.state),
    "submitted": lambda job: job.submitted_at,
    "workload": lambda job: job.workload,
    "label": lambda job: job.label,
}
ENDED_STATES = ("done", "failed", "cancelled")


# ---- lists of jobs


def sort_key(text: str) -> str:
    if text.removeprefix("-") not in SORT_KEYS:
        keys = ", ".join(SORT_KEYS)
        raise UsageError(f"{text!r}: choose from: {keys}; with - before it descending")
    return text


def pause(text: str) -> float:
    seconds = units.parse_time(text)
    if not 0.1 <= seconds <= 86400:
        raise UsageError(f"{text}: should be from 100ms to 1d")
    return seconds


def status(
    numbers: SomeJobNumbers = None,
    state: flags.States = None,
    newest: flags.Newest = None,
    sort: Annotated[str, option("[-]KEY", f"{', '.join(SORT_KEYS)}.", sort_key)] = "job",
    repeat: Annotated[bool, switch("Repeat until Ctrl-C.", "--watch", "-w")] = False,
    interval: Annotated[
        float, option("TIME", "Time between repetitions.", pause, shown="2s")
    ] = 2.0,
    json: Json = False,
) -> None:
    states = flags.joined(state)
    limit = newest if newest or numbers else NEWEST
    more = None if limit is None else limit + 1  # to see whether there are more
    with Control() as daemon:
        while True:
            lines = daemon.status(states, more, numbers or ())
            shown = sorted(
                lines if limit is None else lines[-limit:],
                key=SORT_KEYS[sort.removeprefix("-")],
                reverse=sort.startswith("-"),
            )
            text = jobs.job_lines(shown, "%H:%M:%S") if shown else [NO_JOBS]
            if states and not shown:
                text = [f"no jobs are {' or '.join(states)}"]
            if limit is not None and len(lines) > limit and newest is None:
                text.append(f"the last {limit} jobs; more: hetsched status -n 1000")
            devices = daemon.device_list()
            barred = {**devices.restricted, **devices.absent}  # from jobs, after failures
            text += [f"{d.name}: {barred[d.name]}" for d in devices.devices if d.name in barred]
            if repeat and not json and sys.stdout.isatty() and terminal.can_move_cursor():
                sys.stdout.write(CLEAR)
            answer(json, "jobs/1", {"jobs": list(map(jobs.job_record, shown))}, text)
            if not repeat:
                return
            sys.stdout.flush()
            time.sleep(interval)
            interrupts.reraise()


def history(
    state: flags.States = None,
    since: Annotated[
        float | None,
        option("TIME", "Submitted since: 7d, 2026-11-20.", flags.past, "--since", "-S"),
    ] = None,
    newest: flags.Newest = 100,
    json: Json = False,
) -> None:
    with Control() as daemon:
        lines = daemon.history(flags.joined(state), since, newest or 100)
    text = jobs.job_lines(lines, jobs.DATE) if lines else ["no such jobs"]
    answer(json, "history/1", {"jobs": list(map(jobs.job_record, lines))}, text)


# ---- one job, and its result


def show(job: JobNumber, json: Json = False) -> None:
    with Control() as daemon:
        state: JobState = daemon.show(job)
        (entry,) = daemon.status(jobs=[job])
    if isinstance(state, Queued) and isinstance(entry.state, Queued):
        state = entry.state  # with its present position
    report = state.report if isinstance(state, Ended) else None
    word = jobs.word(state)
    if json:
        record = {**msgspec.to_builtins(state), "schema": SCHEMA, "state": word}
        out_json(record if report is None else report)
        return
    out(f"job {job}  {word}  {jobs.event_detail(state)}".rstrip())
    out_lines(jobs.options(entry))
    if isinstance(state, Failed):
        out_lines(state.error.frames.splitlines())
    if report is not None and report.params:
        out(f"{report.workload}  {parameters(report.params)}")
    if report is not None and report.devices:
        out_lines([*jobs.table(report), *jobs.summary(report, with_reasons=True)])


def result(
    job: JobNumber,
    output: Annotated[
        list[Any] | None,
        option("[NAME=]FILE", f"Save: {FORMAT_NAMES}.", flags.new_array_file, "--output", "-o"),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    targets = flags.by_array("--output", output)
    from hetsched.client.client import Client

    with Client() as daemon:
        future = daemon.job(job)
        state = daemon.show(job)
        if not isinstance(state, Ended):
            state = watch(future, from_start=False)
        error = jobs.error_of(state)
        assert isinstance(state, Ended)
        # One that has failed only because it hasn't converged has a result.
        if error is not None and not (state.results or state.report.outputs):
            raise error
        if isinstance(state, Done) and state.lost:
            raise errors.InputMissing(state.lost)
        arrays = _arrays(future, state) if state.results else {}
        if targets:
            outputs = _save(state, arrays, targets, force)
        else:
            outputs = dict(state.report.outputs)
            for name, ref in state.results.items():
                shape = "x".join(map(str, ref.shape))
                hint = "in the daemon's memory; save it with -o FILE"
                outputs[name] = f"{shape} {ref.dtype} {hint}"
    text = [f"{name}: {location}" for name, location in outputs.items()]
    answer(json, "result/1", {"job": job, "outputs": outputs}, text)
    if error is not None:
        raise error


def _arrays(job: Job, state: Ended) -> Mapping[str, Any]:
    """Return the outputs. Raises the job's error, or InputMissing, if there are none any more."""
    error = job.exception() if isinstance(state, Failed) else None
    reached = error.result if isinstance(error, errors.JobFailed) else None
    found = job.result() if reached is None else reached
    return found if isinstance(found, Mapping) else {next(iter(state.results)): found}


def _save(
    state: Ended, arrays: Mapping[str, Any], targets: Mapping[str, str], force: bool
) -> dict[str, str]:
    from hetsched.store.output_files import save_array

    if not arrays:
        files = ", ".join(state.report.outputs.values())
        saved = f"already saved its result: {files}" if files else "has no result"
        raise UsageError(f"job {state.job} {saved}")
    names = ", ".join(arrays)
    written = {}
    for target, path in targets.items():
        if not target and len(arrays) > 1:
            raise UsageError(f"job {state.job} has several outputs: {names}; use -o NAME=FILE")
        name = target or names
        if name not in arrays:
            raise UsageError(f"job {state.job} has no output {name!r}; it has {names}")
        save_array(path, arrays[name], force)
        written[name] = path
    return written


# ---- changing jobs


def change_each(numbers: Iterable[int], change: Callable[[Control, int], str]) -> None:
    """Call `change` for each job once and print the line that it returns, or its error.

    A job that can't be changed doesn't keep the others from it; the first error gives the code.
    """
    numbers = list(dict.fromkeys(numbers))
    codes = []
    with Control() as daemon:
        for job in numbers:
            try:
                out(change(daemon, job))
                terminal.flush_lines()
            except HetschedError as error:
                if len(numbers) == 1:
                    raise
                note(f"error: {error}")
                codes.append(error.code)
    if codes:
        raise typer.Exit(codes[0])


def hold(numbers: JobNumbers) -> None:
    change_each(
        numbers,
        lambda daemon, job: (
            f"held {job}" if daemon.hold(job).is_changed else f"{job} is already held"
        ),
    )


def release(numbers: JobNumbers) -> None:
    change_each(
        numbers,
        lambda daemon, job: (
            f"released {job}" if daemon.release(job).is_changed else f"{job} isn't held"
        ),
    )


Priority = Annotated[int, flags.argument("N", flags.PRIORITY_HELP, flags.priority)]


def _prioritize(numbers: JobNumbers, priority: Priority) -> None:
    def change(daemon: Control, job: int) -> str:
        if daemon.prioritize(job, priority).is_changed:
            return f"priority of {job}: {priority}"
        return f"{job} already has priority {priority}"

    change_each(numbers, change)


# A negative number isn't an option
prioritize = command("prioritize", _prioritize, ignore_unknown_options=True)


def retry(
    numbers: JobNumbers,
    force: Force = False,
    parsable: Annotated[
        bool, switch("Print nothing but the new job numbers.", "--parsable")
    ] = False,
) -> None:
    text = "{}" if parsable else "submitted {}: job {} again"
    change_each(numbers, lambda daemon, job: text.format(daemon.retry(job, force=force), job))


def cancel(
    numbers: SomeJobNumbers = None,
    everything: Annotated[bool, switch("Stop all jobs that haven't ended.", "--all")] = False,
) -> None:
    if bool(numbers) == everything:
        raise UsageError("give the numbers of jobs, or --all for all of them")

    def change(daemon: Control, job: int) -> str:
        state = daemon.show(job)
        if isinstance(state, Ended):
            return f"job {job} has already ended: {jobs.word(state)}"
        daemon.cancel(job)
        return f"cancelled {job}"

    if numbers:
        change_each(numbers, change)
        return
    with Control() as daemon:
        cancelled = daemon.cancel_all()
    out_lines([f"cancelled {job}" for job in cancelled] or ["no jobs to cancel"])


def clean(
    older: Annotated[
        float | None,
        option("TIME", "Only jobs that ended at least this long ago: 7d.", units.parse_time),
    ] = None,
    state: Annotated[list[Any] | None, flags.states(ENDED_STATES)] = None,
    json: Json = False,
) -> None:
    with Control() as daemon:
        forgotten = daemon.clean(flags.joined(state), older or 0.0)
    text = f"forgot {units.counted(len(forgotten), 'job')}"
    answer(json, "forgotten/1", {"jobs": forgotten}, [text])


# ---- waiting for jobs


def wait(
    numbers: JobNumbers,
    timeout: Annotated[
        float | None, option("TIME", "Give up after e.g. 5m (exit code 124).", units.parse_time)
    ] = None,
    json: Json = False,
) -> None:
    with Control() as daemon:
        futures = [daemon.job(number) for number in dict.fromkeys(numbers)]
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        states = []
        for job in futures:
            states.append(state := watch(job, from_start=False, deadline=deadline))
            if json and isinstance(state, Ended):
                out_json(state.report)
    pending = [str(state.job) for state in states if not isinstance(state, Ended)]
    if timeout is not None and pending:
        text = f"jobs {', '.join(pending)} haven't ended; they continue"
        if len(pending) == 1:
            text = f"job {pending[0]} hasn't ended; it continues"
        raise errors.WaitTimeout(f"after {units.format_seconds(timeout)}: {text}")
    for error in filter(None, map(jobs.error_of, states)):
        raise error


def follow(numbers: SomeJobNumbers = None, json: Json = False) -> int:
    try:
        _follow(numbers or (), json)
    except KeyboardInterrupt:  # the way to end it, so nothing to report
        return 130
    return 0


def _follow(numbers: Sequence[int], json: bool) -> None:
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
            word, detail = jobs.word(state), jobs.event_detail(state)
            if json:
                event = {"schema": "hetsched.event/1", "sequence": sequence, "job": state.job}
                out_json({**event, "state": word, "detail": detail})
            else:
                out(f"{time.strftime('%H:%M:%S')} {word} {state.job} {detail}".rstrip())
            terminal.flush_lines()
        except Exception as error:  # such as BrokenPipeError
            if not failed.done():
                failed.set_exception(error)

    with Control() as daemon:
        follower = daemon.events(on_event, numbers)
        if not numbers:
            note("following all jobs; Ctrl-C ends it")
        sleep = sleeper(follower.done, failed)
        while not (follower.done.done() or failed.done()):
            sleep()
        (failed if failed.done() else follower.done).result()


# ---- the daemon


def drain(
    wait: Annotated[bool, switch("Wait until no job runs or could start.", "--wait")] = False,
    stop: Annotated[bool, switch("End the daemon when its jobs have ended.", "--stop")] = False,
    now: Annotated[
        bool, switch("End the daemon now; running jobs stop after their chunks.", "--now")
    ] = False,
    undo: Annotated[bool, switch("Accept jobs again.", "--undo")] = False,
    json: Json = False,
) -> None:
    if undo and (wait or stop or now):
        raise UsageError("--undo can't be combined with --wait, --stop or --now")
    if now and (wait or stop):
        raise UsageError("--now doesn't wait: omit --wait and --stop")
    with Control() as daemon:
        found = daemon.drain(stop=stop and not wait, now=now, undo=undo)
        if wait:
            while waited_for := _without_release(daemon.status(["queued", "running"])):
                waited_for.sort(key=lambda job: isinstance(job.state, Queued))  # the others first
                daemon.job(waited_for[0].job).exception()
            found = daemon.drain(stop=stop)
    left = units.counted(found.unfinished, "job")
    text = f"draining: no new jobs; {left} to finish{', then the daemon ends' if stop else ''}"
    if undo:
        text = "accepting jobs again"
    elif now:
        text = "stopping: running jobs end after their current chunks"
    record = {"draining": found.is_draining, "unfinished": found.unfinished}
    answer(json, "drain/1", record, [text])


def _without_release(lines: Sequence[JobLine]) -> list[JobLine]:
    """Return the jobs that end without one; `lines`: in the order of submission."""
    stuck: set[int] = set()
    for job in lines:
        is_held = isinstance(job.state, Queued) and job.state.reason == "held"
        if is_held or any(earlier.job in stuck for earlier in job.after):
            stuck.add(job.job)
    return [job for job in lines if job.job not in stuck]


def stop() -> None:
    with Control(reconnect=0) as daemon:
        pid = daemon.ping().pid
        try:
            process = os.pidfd_open(pid)
        except OSError as error:
            text = f"the daemon, pid {pid}, has ended: {error.strerror}"
            raise errors.Unavailable(text) from None
        daemon.drain(now=True)
    sockets.is_readable(process)  # when the process has ended
    os.close(process)
    out(f"stopped the daemon, pid {pid}")


def ping(json: Json = False) -> None:
    with Control() as daemon:
        began = time.perf_counter()
        pong = daemon.ping()
        seconds = time.perf_counter() - began
    record = {name: getattr(pong, name) for name in ("pid", "version", "uptime_seconds")}
    up, round_trip = units.format_seconds(pong.uptime_seconds), units.format_seconds(seconds)
    text = f"pong from pid {pong.pid}, version {pong.version}, up {up}: {round_trip}"
    answer(json, "pong/1", {**record, "round_trip_seconds": seconds}, [text])
