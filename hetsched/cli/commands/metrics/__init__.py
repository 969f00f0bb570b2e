"""`hetsched metrics`: the daemon's counters and gauges, as Prometheus reads them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

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
        text = daemon.metrics()
    if json:
        out_json({"schema": SCHEMA, "metrics": _records(text)})
        return
    for line in text.splitlines():
        out(line)


def _records(text: str) -> list[dict[str, Any]]:
    from prometheus_client.parser import text_string_to_metric_families

    return [
        {
            "name": family.name,
            "kind": family.type,
            "help": family.documentation,
            "samples": [
                {
                    "value": sample.value,
                    "labels": sample.labels,
                    "suffix": sample.name.removeprefix(family.name),
                }
                for sample in family.samples
            ],
        }
        for family in text_string_to_metric_families(text)
    ]
