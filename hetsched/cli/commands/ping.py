"""`hetsched ping`: whether the daemon runs, and how fast it answers."""

from __future__ import annotations

import time

from hetsched.cli.connect import control
from hetsched.cli.output.terminal import out, out_json
from hetsched.cli.request_flags import Json
from hetsched.units import format_seconds

SCHEMA = "hetsched.pong/1"


def ping(json: Json = False) -> None:
    """Check that the daemon answers."""
    with control() as daemon:
        began = time.perf_counter()
        pong = daemon.ping()
        seconds = time.perf_counter() - began
    if json:
        out_json(
            {
                "schema": SCHEMA,
                "pid": pong.pid,
                "version": pong.version,
                "uptime_seconds": pong.uptime_seconds,
                "round_trip_seconds": seconds,
            }
        )
        return
    uptime = format_seconds(pong.uptime_seconds)
    answer = f"pong from pid {pong.pid}, version {pong.version}, up {uptime}"
    out(f"{answer}: {format_seconds(seconds)}")
