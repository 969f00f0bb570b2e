"""`hetsched explain ID`: what the daemon did with a job, and why."""

from __future__ import annotations

from hetsched.cli.connect import control
from hetsched.cli.output import explanation
from hetsched.cli.request_flags import JobNumber, Json


def explain(
    job: JobNumber,
    trace: explanation.Trace = None,
    plot: explanation.Plot = None,
    force: explanation.ForceFiles = False,
    json: Json = False,
) -> None:
    """Explain a job's split, its timing and what would help."""
    explanation.check(trace, plot, force)
    with control() as daemon:
        explained = daemon.explain(job)
    explanation.write(explained, trace, plot, force)
    explanation.show(explained, json)
