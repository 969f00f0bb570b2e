"""`hetsched ping`: is the daemon there, and how fast does it answer?"""

from __future__ import annotations

import time

from hetsched.cli.connect import control
from hetsched.cli.output.terminal import out, out_json
from hetsched.cli.request_flags import Json
from hetsched.units import format_seconds


def ping(json: Json = False) -> None:
    """Ask the daemon for a sign of life."""
    with control() as daemon:
        began = time.perf_counter()
        pong = daemon.ping()
        took = time.perf_counter() - began
    if json:
        out_json(
            {
                "schema": "hetsched.pong/1",
                "pid": pong.pid,
                "version": pong.version,
                "uptime_seconds": pong.uptime_seconds,
                "round_trip_seconds": took,
            }
        )
        return
    up = format_seconds(pong.uptime_seconds)
    out(f"pong from pid {pong.pid}, version {pong.version}, up {up}: {format_seconds(took)}")
