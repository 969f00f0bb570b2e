"""`hetsched explain ID`: what became of a job of the daemon, and why."""

from __future__ import annotations

from hetsched.cli import showing
from hetsched.cli.reach import control
from hetsched.cli.request import JobNumber, Json


def explain(
    job: JobNumber,
    trace: showing.Trace = None,
    plot: showing.Plot = None,
    force: showing.ForceFiles = False,
    json: Json = False,
) -> None:
    """Explain a job: why this split, what was predicted, where the time went, what would help."""
    showing.check(trace, plot, force)
    with control() as daemon:
        account = daemon.explain(job)
    showing.write(account, trace, plot, force)
    showing.show(account, json)
