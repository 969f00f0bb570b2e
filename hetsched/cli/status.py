"""`hetsched status`: the jobs that the daemon knows."""

from __future__ import annotations

import time

from hetsched.cli import jobs
from hetsched.cli.reach import control
from hetsched.cli.request import Json
from hetsched.cli.say import columns, out, out_json

SCHEMA = "hetsched.jobs/1"


def status(json: Json = False) -> None:
    """Show the jobs that the daemon knows."""
    with control() as daemon:
        lines = daemon.status()
    if json:
        listed = [
            {
                **jobs.builtins(line),
                "state": jobs.word(line.state),
                "detail": jobs.detail(line.state),
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
            jobs.parameters(line.params),
            jobs.word(line.state),
            time.strftime("%H:%M:%S", time.localtime(line.submitted_at)),
            jobs.detail(line.state),
        )
        for line in lines
    ]
    header = ("job", "workload", "parameters", "state", "submitted", "")
    for text in columns(header, rows, left=len(header)):
        out(text)
