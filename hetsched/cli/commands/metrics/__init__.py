"""`hetsched metrics`: the daemon's counters and gauges, as Prometheus reads them."""

from __future__ import annotations

from typing import Annotated

import typer

from hetsched.cli.commands.metrics.text import prometheus_text
from hetsched.cli.connect import control
from hetsched.cli.output.terminal import out, out_json
from hetsched.cli.request_flags import Json
from hetsched.errors import UsageError

SCHEMA = "hetsched.metrics/1"

Serve = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT|unix:PATH", help="Serve them by HTTP on this machine."),
]


def metrics(serve: Serve = None, json: Json = False) -> None:
    """Show counters and gauges for Prometheus."""
    if serve is not None:
        if json:
            raise UsageError("--json and --serve exclude each other")
        from hetsched.cli.commands.metrics.server import serve as serve_metrics

        serve_metrics(serve)
        return
    with control() as daemon:
        collected = daemon.metrics()
    if json:
        out_json({"schema": SCHEMA, "metrics": collected})
        return
    for line in prometheus_text(collected).splitlines():
        out(line)
