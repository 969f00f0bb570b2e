"""The table of jobs that `status` and `history` print. Pure: records in, lines out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from hetsched.cli.output import job_lines
from hetsched.cli.output.progress import TURN
from hetsched.cli.output.terminal import columns
from hetsched.errors import UsageError
from hetsched.job import Ended, Failed, Queued
from hetsched.transport.messages import JobLine

SORT_KEYS: dict[str, Callable[[JobLine], object]] = {
    "job": lambda job: job.job,
    "priority": lambda job: job.priority,
    "state": lambda job: job_lines.word(job.state),
    "submitted": lambda job: job.submitted_at,
    "workload": lambda job: job.workload,
    "label": lambda job: job.label,
}
OPTIONAL_COLUMNS = (
    *("priority", "label", "reason", "progress"),
    *("whole time", "kernels' time", "error"),
)


def sorted_jobs(jobs: Sequence[JobLine], key: str) -> list[JobLine]:
    """Return `jobs` by one of SORT_KEYS; descending with a "-" before it.

    Raises
    ------
    UsageError
        No such key.
    """
    name = key.removeprefix("-")
    if name not in SORT_KEYS:
        keys = ", ".join(SORT_KEYS)
        raise UsageError(f"--sort {key!r}: choose from: {keys}; with - before it descending")

    def sort_key(job: JobLine) -> object:
        return SORT_KEYS[name](job)

    return sorted(jobs, key=sort_key, reverse=key.startswith("-"))  # type: ignore[arg-type]


def job_rows(jobs: Sequence[JobLine]) -> list[str]:
    """Return the table's lines; columns that would be empty are omitted."""
    header = [
        "job", "workload", "parameters", "state", "priority", "label", "submitted", "reason",
        "progress", "whole time", "kernels' time", "error",
    ]  # fmt: skip
    rows = [
        [
            str(job.job),
            job.workload,
            job_lines.parameters(job.params, job.shapes),
            job_lines.word(job.state),
            str(job.priority or ""),
            job.label,
            time.strftime("%H:%M:%S", time.localtime(job.submitted_at)),
            job.state.reason if isinstance(job.state, Queued) else "",
            _progress(job),
            job_lines.whole_time(job),
            job_lines.kernels_time(job),
            job.state.error.message if isinstance(job.state, Failed) else "",
        ]
        for job in jobs
    ]
    used = [
        i
        for i, name in enumerate(header)
        if name not in OPTIONAL_COLUMNS or any(row[i] for row in rows)
    ]
    table = [[row[i] for i in used] for row in [header, *rows]]
    return columns(table[0], table[1:], left_columns=len(used))


def _progress(job: JobLine) -> str:
    """Return how far a job is: how many are ahead of it if it waits for its turn only."""
    if isinstance(job.state, Ended) or (
        isinstance(job.state, Queued) and job.state.reason not in ("", *TURN)
    ):
        return ""
    return job_lines.detail(job.state)


def reason(job: JobLine) -> str:
    """Return why a job waits or failed, as JSON has it; "" for others."""
    match job.state:
        case Queued():
            return job.state.reason
        case Failed():
            return job.state.error.message
    return ""
