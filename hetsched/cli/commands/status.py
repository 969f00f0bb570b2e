"""`hetsched status`: the daemon's jobs."""

from __future__ import annotations

import time

from hetsched.cli.connect import control
from hetsched.cli.output import job_lines
from hetsched.cli.output.terminal import columns, out, out_json
from hetsched.cli.request_flags import Json

SCHEMA = "hetsched.jobs/1"


def status(json: Json = False) -> None:
    """List the daemon's jobs."""
    with control() as daemon:
        jobs = daemon.status()
    if json:
        entries = [
            {
                **job_lines.builtins(job),
                "state": job_lines.word(job.state),
                "detail": job_lines.detail(job.state),
            }
            for job in jobs
        ]
        out_json({"schema": SCHEMA, "jobs": entries})
        return
    if not jobs:
        out("no jobs; try: hetsched submit fft --batch 256x512x512")
        return
    rows = [
        (
            str(job.job),
            job.workload,
            job_lines.parameters(job.params),
            job_lines.word(job.state),
            time.strftime("%H:%M:%S", time.localtime(job.submitted_at)),
            job_lines.detail(job.state),
        )
        for job in jobs
    ]
    header = ("job", "workload", "parameters", "state", "submitted", "")
    for text in columns(header, rows, left_columns=len(header)):
        out(text)
