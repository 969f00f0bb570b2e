"""A device process: ``python -m hetsched.device_process.main --fd N --spec JSON``.

The main thread reads commands from the engine and passes them to one thread per device, which
sends the answers. The process ends with its engine: at the end of file on the socket, or by a
signal from the kernel when the engine dies.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import gc
import os
import select
import signal
import socket
import sys
import threading
import traceback
from queue import SimpleQueue

import msgspec

from hetsched.device import DeviceInfo
from hetsched.device_process.attachments import Attachments
from hetsched.device_process.device_thread import FAULT_EXIT
from hetsched.device_process.device_threads import DeviceThreads
from hetsched.device_process.iterating.core_processes import CoreProcesses
from hetsched.device_process.shared_tails import SharedTails
from hetsched.devices.process_spec import ProcessSpec
from hetsched.devices.registry import device_opener
from hetsched.errors import HetschedError, InternalError
from hetsched.transport.codec import Decoder, encode
from hetsched.transport.device_messages import (
    Attach,
    Command,
    CommandBatch,
    Detach,
    Event,
    Fence,
    Hello,
    Ping,
    Pong,
    Prepare,
    Stop,
)
from hetsched.transport.large_messages import MARKER, MAX_INLINE, MAX_LARGE, in_memfd, unpack
from hetsched.transport.sockets import close_all, receive_message, send_message

STOP_SECONDS = 5.0
"""Time for the devices to finish their chunks after Stop."""
_PR_SET_PDEATHSIG = 1

_OpenResult = tuple[int, DeviceInfo | HetschedError]


class DeviceHost:
    """All devices of one process, behind one socket."""

    def __init__(self, sock: socket.socket, spec: ProcessSpec) -> None:
        self._sock = sock
        self._send_lock = threading.Lock()
        self._decode: Decoder[Command] = Decoder(Command, MAX_LARGE)
        self._attachments = Attachments()
        tails = SharedTails()
        self._core_processes = CoreProcesses(spec, self.send, lambda: os._exit(FAULT_EXIT))
        self._open_results: SimpleQueue[_OpenResult] = SimpleQueue()
        open_device = device_opener(spec.package, spec.config)
        self._devices = [
            DeviceThreads(
                index,
                info,
                open_device,
                self._attachments,
                self.send,
                lambda index, result: self._open_results.put((index, result)),
                tails,
                spec.warm_for,
            )
            for index, info in enumerate(spec.devices)
        ]

    def open(self) -> None:
        """Open all devices and send Hello. Raises the error of the first that can't be opened."""
        for threads in self._devices:
            threads.start()
        infos = self._opened(len(self._devices))
        self._opened(sum(threads.start_side() for threads in self._devices))
        idents = tuple(threads.idents for threads in self._devices)
        self.send(Hello(os.getpid(), tuple(infos[index] for index in sorted(infos)), idents))

    def _opened(self, count: int) -> dict[int, DeviceInfo]:
        """Wait until `count` threads have opened their devices; return these by index."""
        infos: dict[int, DeviceInfo] = {}
        for _ in range(count):
            index, result = self._open_results.get()
            if isinstance(result, HetschedError):
                raise result
            infos[index] = result
        return infos

    def serve(self) -> bool:
        """Handle commands; return True at Stop, False at the end of the engine."""
        population = self._attachments.population
        while True:
            if population.is_pending and not self._has_message():
                population.step()
                continue
            payload, fds = receive_message(self._sock, MAX_INLINE)
            if not payload:
                return False
            command = self._decode(unpack(payload, fds))
            if isinstance(command, Stop):
                return True
            self._dispatch(command, fds)

    def _has_message(self) -> bool:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))

    def stop(self) -> None:
        """Wait until the devices have finished their commands, then end their threads."""
        self._attachments.population.abandon()
        self._core_processes.stop()
        for threads in self._devices:
            threads.stop()
        for threads in self._devices:
            threads.join(STOP_SECONDS)

    def send(self, event: Event) -> None:
        """Send `event` to the engine. Safe from any thread."""
        payload, fds = encode(event), []
        if len(payload) > MAX_INLINE:
            payload, fds = MARKER, [in_memfd(payload)]
        try:
            with self._send_lock:
                send_message(self._sock, payload, fds)
        except OSError:
            os._exit(0)  # the engine has ended
        close_all(fds)

    def _dispatch(self, command: Command, fds: list[int]) -> None:
        match command:
            case Attach():
                if len(fds) != 1:
                    raise InternalError(f"attach {command.key} with {len(fds)} descriptors, not 1")
                self._core_processes.attach(command, fds[0])
                self._attachments.attach(command, fds[0])
            case Detach():
                self._core_processes.detach(command.keys)
                self._attachments.detach(command.keys)
                for threads in self._devices:
                    threads.on_detached()
            case CommandBatch():
                for device_command in command.commands:
                    self._dispatch(device_command, [])
            case Ping():
                self.send(Pong())
            case Stop():
                close_all(fds)
            case _:
                if isinstance(command, Fence):
                    self._attachments.population.abandon()  # else it waits for gigabytes
                if not self._core_processes.handle(command):
                    if isinstance(command, Prepare):
                        self._attachments.population.begin(a.key for a in command.arrays)
                    self._devices[command.device].handle(command)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; exit now if it already has."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def main(arguments: list[str] | None = None) -> None:
    """Run a device process until Stop or the end of its engine."""
    parser = argparse.ArgumentParser(prog="hetsched.device_process.main")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--spec", required=True)
    options = parser.parse_args(arguments)
    faulthandler.enable()  # the engine reads which thread has crashed
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the engine alone handles Ctrl-C
    die_with_parent(options.parent)
    sock = socket.socket(fileno=options.fd)
    sock.set_inheritable(False)
    status = run_host(DeviceHost(sock, msgspec.json.decode(options.spec, type=ProcessSpec)))
    # Skip destructors of vendor libraries, which print and may hang.
    sys.stderr.flush()
    os._exit(status)


def run_host(host: DeviceHost) -> int:
    """Open the devices, serve until the end, and return the exit status."""
    try:
        host.open()
        # Objects made so far live as long as the process: exempt them from garbage collection.
        gc.collect()
        gc.freeze()
        if host.serve():
            host.stop()
    except HetschedError as error:
        print(error, file=sys.stderr)  # noqa: T201 - read by the engine
        return error.code
    except BaseException:
        traceback.print_exc()
        return InternalError.code
    return 0


if __name__ == "__main__":
    main()
