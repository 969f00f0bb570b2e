"""A process for one device, or the template from which such processes are forked.

``python -m hetsched.device_process.main FD PARENT [SPEC]``: its socket, the engine's process id,
and a `ProcessSpec` as JSON; without that, a template. A process ends with its engine: at the end
of file on its socket, or by a signal from the kernel when its parent dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import msgspec
import numpy as np

from hetsched import errors
from hetsched.device import DeviceInfo
from hetsched.device_process.device_loop import DeviceLoop, DeviceUnusable
from hetsched.devices.probe import ProcessSpec, open_device
from hetsched.transport import sockets
from hetsched.transport.device_messages import Channel, Command

FAULT_EXIT = 17
"""Exit status of a process whose device has become unusable."""
MAX_REQUEST = 1 << 16
"""Bytes of a request to the template: a spec as JSON."""
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_prctl = ctypes.CDLL(None).prctl


def main() -> None:
    fd, parent, *spec = sys.argv[1:]
    faulthandler.enable()  # the engine shows where a process has crashed
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the engine alone handles Ctrl-C
    die_with_parent(int(parent))
    sock = socket.socket(fileno=int(fd))
    sock.set_inheritable(False)
    if spec:
        run_device(sock, spec[0])
    serve_forks(sock)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; exit now if it already has."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


# ---- a device


def run_device(sock: socket.socket, spec: str | bytes) -> NoReturn:
    status = errors.InternalError.code
    try:
        process = msgspec.json.decode(spec, type=ProcessSpec)
        info = process.device
        _prctl(_PR_SET_NAME, f"hetsched {info.name}".encode()[:15], 0, 0, 0)
        pin(info)
        device = open_device(process)
        _freeze()
        DeviceLoop(Channel(sock, list[Command]), device, process.warm_for).run()
        status = 0
    except DeviceUnusable:
        # A normal exit would run destructors on a device that no longer responds.
        status = FAULT_EXIT
    except errors.HetschedError as error:
        print(error, file=sys.stderr)  # noqa: T201 - read by the engine
        status = error.code
    except BaseException:
        traceback.print_exc()
    # Skip destructors of vendor libraries, which print and may hang.
    with contextlib.suppress(BaseException):
        sys.stderr.flush()
    os._exit(status)


def _freeze() -> None:
    gc.collect()  # What is left lives as long as the process
    gc.freeze()


def pin(info: DeviceInfo) -> None:
    """Pin this thread, and threads that it starts later, to the device's cores.

    It keeps the usual policy: a batch thread would wait for up to a tick, 4 ms, until what else
    runs on its core, be it the engine's thread after its last message, has used its time slice.
    """
    if info.cores:
        os.sched_setaffinity(0, info.cores)  # 0: this thread
    if info.cores and info.members:
        # Also the threads that libraries have started for a team.
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # the thread has just ended
                os.sched_setaffinity(int(thread.name), info.cores)


# ---- the template


def serve_forks(sock: socket.socket) -> None:
    """Fork a process for each request; end with the engine.

    A request is a spec with the process's socket and its stderr; the answer is its pid with a
    pidfd. A request without descriptors is the pid of a dead child, which the engine has looked
    at: until then nobody may reap it, or its pid could be that of another process.
    """
    importlib.import_module("hetsched.devices.cpu.device")  # what all cores need
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:  # which don't survive a fork
        raise errors.InternalError(
            f"the template of device processes has {threads} threads, not 1"
        )
    _freeze()
    sockets.send_message(sock, b"ready", [])
    parent = os.getpid()
    while True:
        request, fds = sockets.receive_message(sock, MAX_REQUEST)
        if not request:
            os._exit(0)  # children end with their parent
        if not fds:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(int(request), 0)
            continue
        pid = os.fork()
        if not pid:
            die_with_parent(parent)
            sock.close()
            channel, stderr = fds
            os.dup2(stderr, 2)
            os.close(stderr)
            np.random.seed()  # else all cores' kernels would draw the same numbers from it
            run_device(socket.socket(fileno=channel), request)
        pidfd = os.pidfd_open(pid)
        sockets.send_message(sock, str(pid).encode(), [pidfd])
        sockets.close_all([*fds, pidfd])


if __name__ == "__main__":
    main()
