"""What runs in a Dask worker: it starts the host's process, and says where that listens.

It imports little: a worker has nothing else to do with hetsched.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import subprocess
import sys
import threading
from typing import Any
from urllib.parse import urlsplit

import msgspec

START = 120.0
"""Seconds for a host's process to start: it imports much, on many hosts from one file server."""


class Settings(msgspec.Struct, frozen=True):
    """How to listen; the TLS files are Dask's, as paths or texts, all or none."""

    token: str
    interface: str = "127.0.0.1"
    ca: str = ""
    certificate: str = ""
    key: str = ""


def _start(settings: Settings) -> tuple[int, subprocess.Popen[bytes]]:
    """Start a worker's child; return its port. Raises RuntimeError.

    Its standard input ends however the worker does.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "hetsched.hosts.host"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    late = threading.Timer(START, child.kill)
    late.start()
    line = b""
    try:
        child.stdin.write(msgspec.json.encode(settings) + b"\n")
        child.stdin.flush()
        line = child.stdout.readline()
        return int(line), child
    except (OSError, ValueError):
        child.kill()
        reason = line.decode(errors="replace").strip() or "see its log"
        raise RuntimeError(f"hetsched's host process hasn't started: {reason}") from None
    finally:
        late.cancel()


async def place(dask_worker: Any) -> tuple[str, str, int, str]:
    """Return (machine, interface, port, token) of a worker's child, started unless it runs.

    Runs in the Dask worker, whose event loop it must not block.
    """
    if not hasattr(dask_worker, "hetsched_lock"):
        dask_worker.hetsched_lock, dask_worker.hetsched = asyncio.Lock(), None
    async with dask_worker.hetsched_lock:
        if dask_worker.hetsched is None or dask_worker.hetsched[-1].poll() is not None:
            security = dask_worker.security
            chosen = Settings(
                token=secrets.token_hex(32),
                interface=urlsplit(dask_worker.address).hostname or "127.0.0.1",
                ca=security.tls_ca_file or "",
                certificate=security.tls_worker_cert or "",
                key=security.tls_worker_key or "",
            )
            dask_worker.hetsched = (chosen, *await asyncio.to_thread(_start, chosen))
        chosen, port, _ = dask_worker.hetsched
    return socket.gethostname(), chosen.interface, port, chosen.token
