"""Jobs as text: states, rows of lists, the closing table. Pure, but for `finish`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from hetsched.cli.terminal import out_json, out_lines
from hetsched.errors import HetschedError, from_record
from hetsched.job import (
    Done,
    Ended,
    Failed,
    IterationSeconds,
    JobReport,
    JobState,
    Queued,
    Running,
    words,
)
from hetsched.text import columns, grouped_rows, named_rows, number, parameters, seconds_column
from hetsched.transport.messages import JobLine
from hetsched.units import counted, format_seconds

TURN = ("priority", "resources")  # Reasons of a job that only waits for its turn
DATE = "%Y-%m-%d %H:%M:%S"
ALWAYS = ("job", "workload", "parameters", "state", "submitted")
"""Columns of lists that are never omitted."""
PHASES = ("compute", "transfer", "wait", "converge", "save")


# ---- states


def word(state: JobState) -> str:
    return words(state)[0]


def detail(state: JobState) -> str:
    match state:
        case Queued():
            return f"{state.ahead} ahead"
        case Running() if state.iteration is not None and state.stage == "computing":
            return state.text or iteration_progress(state)
        case Running():
            share = sum(device.share for device in state.devices)
            if not share:
                return state.text or state.stage
            return f"{state.stage} {sum(device.done for device in state.devices)}/{share}"
        case Done(report=report):  # as far as its times are known
            kernels = "" if report.seconds is None else format_seconds(report.seconds)
            return ", ".join(_whole_time(report) + [f"kernels' time {kernels}"] * bool(kernels))
        case Failed():
            return state.error.message


def event_detail(state: JobState) -> str:
    """Return the details of a state as `follow` prints them, with the reason to wait."""
    if isinstance(state, Queued) and state.reason:
        return f"{state.reason}, {detail(state)}" if state.ahead else state.reason
    return detail(state)


def error_of(state: JobState) -> HetschedError | None:
    return from_record(state.error) if isinstance(state, Failed) else None


def iteration_progress(state: Running) -> str:
    """Return "iteration 214 of at most 1000, residual 3.2e-05, 87.2/s"; "" before the first."""
    if not state.iteration:
        return ""
    limit = "" if state.max_iterations is None else f" of at most {state.max_iterations}"
    parts = [f"iteration {state.iteration}{limit}"]
    if state.residual is not None:
        parts.append(f"residual {state.residual:.3g}")
    if state.iterations_per_second is not None:
        parts.append(f"{number(state.iterations_per_second)}/s")
    return ", ".join(parts)


# ---- lists


def options(job: JobLine) -> list[str]:
    """Return a line for each option of the queue that was given, such as "label: nightly"."""
    values = {
        "label": job.label,
        "id": job.id,
        "priority": str(job.priority or ""),
        "after": ", ".join(f"{earlier.job}:{earlier.condition}" for earlier in job.after),
        "retries": str(job.retries or ""),
        "timeout": "" if job.timeout is None else format_seconds(job.timeout),
        "deadline": "" if job.deadline is None else _date(DATE, job.deadline),
    }
    return [f"{name}: {value}" for name, value in values.items() if value]


def _date(form: str, seconds: float) -> str:
    return time.strftime(form, time.localtime(seconds))


def job_lines(jobs: Sequence[JobLine], date_format: str) -> list[str]:
    """Return a table of jobs; columns that would be empty are omitted."""
    rows = [_cells(job, date_format) for job in jobs]
    used = [name for name in rows[0] if name in ALWAYS or any(row[name] for row in rows)]
    return columns(used, [[row[name] for name in used] for row in rows], len(used))


def _cells(job: JobLine, date_format: str) -> dict[str, str]:
    """Return heading -> cell. The whole time is from a job's turn to its end."""
    state = job.state
    is_turn = isinstance(state, Queued) and state.reason in ("", *TURN)
    whole = kernels = None
    if isinstance(state, Ended):
        whole, kernels = state.report.whole_seconds, state.report.seconds
        if whole is None and job.started_at is not None and job.ended_at is not None:
            whole = max(0.0, job.ended_at - job.started_at)  # an earlier daemon ran it
    return {
        "job": str(job.job),
        "workload": job.workload,
        "parameters": parameters(job.params, job.shapes),
        "state": word(state),
        "priority": str(job.priority or ""),
        "label": job.label,
        "submitted": _date(date_format, job.submitted_at),
        "reason": state.reason if isinstance(state, Queued) else "",
        "progress": detail(state) if is_turn or isinstance(state, Running) else "",
        "whole time": "" if whole is None else format_seconds(whole),
        "kernels' time": "" if kernels is None else format_seconds(kernels),
        "error": state.error.message if isinstance(state, Failed) else "",
    }


def job_record(job: JobLine) -> dict[str, object]:
    """Return a job of a list as it is printed with --json; `reason`: why it waits or failed."""
    state, fields = job.state, msgspec.structs.asdict(job)  # to_builtins would omit defaults
    reason = state.reason if isinstance(state, Queued) else ""
    reason = state.error.message if isinstance(state, Failed) else reason
    record = {name: msgspec.to_builtins(value) for name, value in fields.items()}
    return {**record, "state": word(state), "reason": reason, "detail": detail(state)}


# ---- the report of a job that has ended


def finish(state: JobState, json: bool, next_steps: Callable[[JobReport], str]) -> None:
    """Print the report of a job that has ended; raise its error if it failed.

    An iterative job that hasn't converged has a report, too: what it reached.
    """
    assert isinstance(state, Ended)
    report = state.report
    error = error_of(state)
    has_reached_limit = report.converged is False and bool(report.iterations)
    if json:
        out_json(report)
    elif error is None or has_reached_limit:
        out_lines([*table(report), *summary(report), next_steps(report)])
    if error is not None:
        raise error


def next_steps(number: int, report: JobReport, results: Sequence[str] = ()) -> str:
    """Return what to do next with a daemon's job. `results`: outputs in the daemon's memory."""
    target = f"{results[0]}={results[0]}.npy" if len(results) > 1 else "out.npy"
    save = "" if report.outputs else f" | hetsched result {number} -o {target}"
    return f"next: hetsched show {number} | hetsched explain {number}{save}"


def table(report: JobReport) -> list[str]:
    """Return the table of devices: variant, share, seconds, units/s, predicted seconds.

    A team of cores has a row only if it has a share. Of an iterative job: variant, rows at the
    end, seconds of each phase in sum.
    """
    used = [each for each in report.devices if each.share or not each.device.startswith("team")]
    rows = grouped_rows(used, lambda device: device.device)
    groups = [members for _, members in rows]
    active = [[m for m in members if m.share] for members in groups]
    shares = [str(sum(member.share for member in members)) for members in groups]
    if report.iterations is not None:
        cells = {"rows": shares}
        for phase in PHASES:
            means = [
                sum(getattr(m.phases or IterationSeconds(), phase) for m in members) / len(members)
                for members in groups
            ]
            if any(means):
                cells[phase] = seconds_column(means)
        active = groups
    else:
        speeds = [sum(m.share / m.seconds for m in g if m.seconds > 0) or None for g in active]
        predicted = [_largest(m.predicted_seconds for m in group) for group in active]
        cells = {
            "share": shares,
            "seconds": seconds_column([_largest(m.seconds for m in group) for group in active]),
            "units/s": list(map(number, speeds)),
            "predicted": seconds_column(predicted),
        }
    variants = [", ".join(dict.fromkeys(m.variant for m in group)) or "-" for group in active]
    body = list(zip([label for label, _ in rows], variants, *cells.values(), strict=True))
    return columns(("device", "variant (library)", *cells), body, left_columns=2)


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def summary(report: JobReport, with_reasons: bool = False) -> list[str]:
    """Return the lines below the table: total time, verification, warnings, result files.

    `with_reasons`: also why each device got its share.
    """
    lines = [_headline(report) if report.iterations is None else _iteration_headline(report)]
    if report.verified is not None:
        lines.append(f"verified: {'all units correct' if report.verified else 'WRONG'}")
        if report.max_error is not None:
            lines[-1] += f", off by at most {report.max_error:.2g} of the largest value"
    late = [f"{counted(d.late, 'phase')} on {d.device}" for d in report.devices if d.late]
    if late:
        where = ", ".join(late)
        lines.append(f"late: {where} took longer than modelled; the times aren't valid")
    devices = tuple(f"{device.device}: " for device in report.devices)
    for text in report.notes:  # the reason of a share begins with its device
        is_reason = text.startswith(devices) or ": no share, " in text
        if with_reasons or not is_reason:
            lines.append(f"note: {text}")
    results = report.outputs.items()
    return [*lines, *(f"result: {name}{' in ' if name else ''}{path}" for name, path in results)]


def _headline(report: JobReport) -> str:
    parts = [f"{report.workload}: {counted(report.load, 'unit')}"]
    if report.seconds is not None:
        parts.append(f"kernels' time {format_seconds(report.seconds)}{_prediction(report)}")
    if report.spread is not None and len(report.devices) > 1:
        parts.append(f"spread {report.spread:.3f}")
    return "  ".join([*parts, *_whole_time(report)])


def _whole_time(report: JobReport) -> list[str]:
    seconds = report.whole_seconds
    return [] if seconds is None else [f"whole time {format_seconds(seconds)}"]


def _prediction(report: JobReport) -> str:
    if report.predicted_seconds and report.seconds is not None:
        error = 100 * (report.seconds / report.predicted_seconds - 1)
        return f" (predicted {format_seconds(report.predicted_seconds)}, {error:+.1f} %)"
    active = [device for device in report.devices if device.share]
    unmeasured = [device for device in active if device.predicted_seconds is None]
    if not unmeasured or len(unmeasured) == len(active):
        return " (no prediction: not measured before)"
    variant = unmeasured[0].variant
    names = [device.device for device in unmeasured if device.variant == variant]
    return f" (no prediction: no measurements for {variant} on {named_rows(names)})"


def _iteration_headline(report: JobReport) -> str:
    """Return the line with the number of iterations, their time and how they ended."""
    iterations = report.iterations or 0
    done = counted(iterations, "iteration")
    if report.seconds and iterations:
        earlier = report.continued_after or 0
        rate = number((iterations - earlier) / report.seconds)
        done += f", {iterations - earlier} of them now" if earlier else ""
        done += f", kernels' time {format_seconds(report.seconds)} ({rate}/s)"
    parts = [f"{report.workload}: {counted(report.load, 'row')}", done]
    if report.converged is not None and iterations:
        parts.append("converged" if report.converged else "not converged")
    if report.residual is not None:
        parts.append(f"residual {report.residual:.3g}")
    if report.moves:
        parts.append(f"rows moved {'once' if report.moves == 1 else f'{report.moves} times'}")
    return "  ".join([*parts, *_whole_time(report)])
