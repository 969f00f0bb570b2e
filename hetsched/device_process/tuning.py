"""Tunes one variant for one kind of job: a process that the engine starts while no job runs.

Reads a `Request` from standard input, writes what the plug-in says to standard output, a line
each, and ends. What it finds out lies in the cache folder.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

import msgspec
import numpy as np

from hetsched.device_process.main import die_with_parent
from hetsched.device_process.prepared_job import MAX_SAID, cache_folder
from hetsched.errors import text_of
from hetsched.workload import KernelContext, find
from hetsched.workload.protocol import decode_params
from hetsched.workload.registry import check_sources

NICE = 19
"""Jobs that arrive go first; the engine stops this process for them, but not at once."""


class Request(msgspec.Struct, frozen=True):
    """What to tune; `is_idle`: nobody waits for it."""

    workload: str  # Module:qualname
    source: str  # Stamp of its module; "": unknown
    params: bytes  # JSON
    variant: str
    load: int  # Units: calls may be as large
    threads: int
    is_idle: bool
    parent: int  # Process id


def main() -> None:
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    die_with_parent(request.parent)
    said = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # libraries print
    if request.is_idle:
        os.nice(NICE)
    try:
        _tune(request, said)
    except BaseException as error:
        print(f"{type(error).__name__}: {text_of(error)}"[:MAX_SAID], file=said)
        raise


def _tune(request: Request, said: TextIO) -> None:
    workload = find(request.workload)
    check_sources(request.workload, request.source)
    make = next(v.make for v in workload.variants("cpu") if v.name == request.variant)

    def say(text: str) -> None:
        print(" ".join(text.split())[:MAX_SAID], file=said)

    context = KernelContext("cpu", request.threads, cache_folder(), np, None, say, tunes=True)
    make(decode_params(workload, request.params), request.load, context)


if __name__ == "__main__":
    main()
