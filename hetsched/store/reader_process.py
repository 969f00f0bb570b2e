"""Reads files of other formats in a process of its own, with limits on its memory and time.

Their parsers hold the GIL, have crashed on files, and believe what a header claims.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence

from hetsched import errors
from hetsched.units import format_bytes

READER_BYTES = 512 << 20
"""Memory of the reader besides its data: its libraries reserve much."""
THREAD_BYTES = 16 << 20
"""Of each thread of the parser, which has one per core: its stack and its buffers."""
START_SECONDS = 30.0
"""To start the reader on a busy machine."""
_PR_SET_PDEATHSIG = 1


def read_apart(
    module: str,
    path: str,
    arguments: Sequence[str],
    *,
    nbytes: int = 0,
    seconds: float = START_SECONDS,
    fds: Sequence[int] = (),
) -> bytes:
    """Return what ``python -m module`` prints, which calls `serve`; its data may take `nbytes`.

    Raises DataError, IOFailure, TryAgain.
    """
    memory = READER_BYTES + THREAD_BYTES * (os.cpu_count() or 1) + nbytes
    # -P: no file of the working folder may shadow a module.
    command = [sys.executable, "-P", "-m", module, str(os.getpid()), str(memory), *arguments]
    import_path = os.pathsep.join(filter(None, sys.path))
    try:
        reader = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=fds,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": import_path},
            process_group=0,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise errors.IOFailure(f"{path}: hasn't been read after {error.timeout:.0f} s") from None
    except OSError as error:
        raise errors.TryAgain(f"{path}: can't start the process that reads it: {error}") from None
    if reader.returncode == errors.DataError.code:
        raise errors.DataError(f"{path}: {reader.stdout.decode(errors='replace')}")
    if reader.returncode < 0:
        crash = signal.Signals(-reader.returncode).name
        raise errors.DataError(f"{path}: broken: the process that reads it ended by {crash}")
    if reader.returncode:
        reason = reader.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise errors.IOFailure(
            f"{path}: the process that reads it ended with status {reader.returncode}:"
            f" {reason[:200]}"
        )
    return reader.stdout


def serve(read: Callable[[Sequence[str]], str]) -> int:
    """Print what `read` makes of the arguments, within the limits; return the exit status."""
    parent, memory, *arguments = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        return 1
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory), int(memory)))
    warnings.simplefilter("ignore")  # standard error is for what went wrong
    try:
        sys.stdout.write(read(arguments))
    except errors.DataError as error:
        sys.stdout.write(str(error))
        return errors.DataError.code
    except MemoryError:
        sys.stdout.write(f"reading it needs more than {format_bytes(int(memory))} of memory")
        return errors.DataError.code
    return 0
