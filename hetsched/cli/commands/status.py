"""`hetsched status`: the jobs that the daemon knows."""

from __future__ import annotations

import time

from hetsched.cli.connect import control
from hetsched.cli.output import job_lines
from hetsched.cli.output.terminal import columns, out, out_json
from hetsched.cli.request_flags import Json

SCHEMA = "hetsched.jobs/1"


def status(json: Json = False) -> None:
    """Show the jobs that the daemon knows."""
    with control() as daemon:
        lines = daemon.status()
    if json:
        listed = [
            {
                **job_lines.builtins(line),
                "state": job_lines.word(line.state),
                "detail": job_lines.detail(line.state),
            }
            for line in lines
        ]
        out_json({"schema": SCHEMA, "jobs": listed})
        return
    if not lines:
        out("no jobs; try: hetsched submit fft --batch 256x512x512")
        return
    rows = [
        (
            str(line.job),
            line.workload,
            job_lines.parameters(line.params),
            job_lines.word(line.state),
            time.strftime("%H:%M:%S", time.localtime(line.submitted_at)),
            job_lines.detail(line.state),
        )
        for line in lines
    ]
    header = ("job", "workload", "parameters", "state", "submitted", "")
    for text in columns(header, rows, left=len(header)):
        out(text)
