"""Tunes one variant for one kind of job: a process that the engine starts while no job runs.

Reads a `Request` from standard input and writes lines to standard output: "said", with what the
plug-in says, at last "took" with the seconds, or "failed" with the reason. What it finds out lies
in the cache folder.
"""

from __future__ import annotations

import functools
import math
import os
import resource
import signal
import sys
import threading
import time
from typing import TextIO

import msgspec
import numpy as np

from hetsched.device_process.main import die_with_parent
from hetsched.device_process.prepared_job import MAX_SAID, cache_folder
from hetsched.errors import text_of
from hetsched.workload import KernelContext, find
from hetsched.workload.protocol import decode_params
from hetsched.workload.registry import check_sources

KIND = "cpu"
"""Of the variants that are tuned."""
NICE = 19
"""Jobs that arrive go first; the engine stops this process for them, but not at once."""
MAX_LATENESS = 20
"""Times the time named by the plug-in, and a minute, after which tuning is given up."""


class Request(msgspec.Struct, frozen=True):
    """What to tune; `is_idle`: nobody waits for it."""

    workload: str  # Module:qualname
    source: str  # Stamp of its module; "": unknown
    params: bytes  # JSON
    variant: str
    load: int  # Units: calls may be as large
    threads: int
    seconds: float  # That the plug-in has named
    is_idle: bool
    parent: int  # Process id


def main() -> None:
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    die_with_parent(request.parent)
    _end_late(60 + math.ceil(MAX_LATENESS * request.seconds), request.threads)
    said = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # libraries print
    if request.is_idle:
        os.nice(NICE)
    try:
        workload = find(request.workload)
        check_sources(request.workload, request.source)
        make = next(v.make for v in workload.variants(KIND) if v.name == request.variant)
        say = functools.partial(_write, said, "said")
        context = KernelContext(KIND, request.threads, cache_folder(), np, None, say, tunes=True)
        make(decode_params(workload, request.params), request.load, context)
    except BaseException as error:
        _write(said, "failed", f"{type(error).__name__}: {text_of(error)}")
        raise
    # Of the processor, as other jobs stop this process
    _write(said, "took", f"{time.process_time() / request.threads:.6f}")


def _end_late(seconds: int, threads: int) -> None:
    """Kill this process after `seconds` in which it wasn't stopped, or as much computing."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds * threads, seconds * threads))

    def wait() -> None:
        for _ in range(seconds):
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def _write(said: TextIO, word: str, text: str) -> None:
    print(word, " ".join(text.split())[:MAX_SAID], file=said)


if __name__ == "__main__":
    main()
