"""A device process: ``python -m hetsched.device_process.main --fd N --spec JSON``.

The main thread reads commands from the engine and hands them to one thread a device; those answer
by themselves. The process ends with its engine: at the socket's end of file, or by the kernel's
signal when the engine dies.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import signal
import socket
import sys
import threading
import traceback
from queue import SimpleQueue

import msgspec

from hetsched.device import DeviceInfo
from hetsched.device_process.attachments import Attachments
from hetsched.device_process.device_thread import DeviceThread
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
    Hello,
    Stop,
)
from hetsched.transport.messages import MAX_FRAME
from hetsched.transport.sockets import close_all, receive_message, send_message

GRACE = 5.0
"""Seconds that devices have to finish what they are at when the process is told to stop."""
_PR_SET_PDEATHSIG = 1

_Opened = tuple[int, DeviceInfo | HetschedError]


class DeviceHost:
    """All devices of one process behind one socket."""

    def __init__(self, sock: socket.socket, spec: ProcessSpec) -> None:
        self._sock = sock
        self._sending = threading.Lock()
        self._decode: Decoder[Command] = Decoder(Command)
        self._attachments = Attachments()
        self._opened: SimpleQueue[_Opened] = SimpleQueue()
        open_device = device_opener(spec.package, spec.config)
        self._threads = [
            DeviceThread(
                index,
                info,
                open_device,
                self._attachments,
                self.send,
                lambda index, found: self._opened.put((index, found)),
            )
            for index, info in enumerate(spec.devices)
        ]

    def open(self) -> None:
        """Open all devices and say hello. Raises what the first one that can't be opened said."""
        for thread in self._threads:
            thread.start()
        infos: dict[int, DeviceInfo] = {}
        for _ in self._threads:
            index, found = self._opened.get()
            if isinstance(found, HetschedError):
                raise found
            infos[index] = found
        self.send(Hello(os.getpid(), tuple(infos[index] for index in sorted(infos))))

    def serve(self) -> bool:
        """Handle commands until told to stop (True) or the engine is gone (False)."""
        while True:
            payload, fds = receive_message(self._sock, MAX_FRAME)
            if not payload:
                return False
            command = self._decode(payload)
            if isinstance(command, Stop):
                return True
            self._dispatch(command, fds)

    def stop(self) -> None:
        """Let the devices finish what was sent to them."""
        for thread in self._threads:
            thread.commands.put(None)
        for thread in self._threads:
            thread.join(GRACE)

    def send(self, event: Event) -> None:
        """Tell the engine. Safe from any thread."""
        payload = encode(event)
        try:
            with self._sending:
                send_message(self._sock, payload)
        except OSError:
            os._exit(0)  # the engine is gone

    def _dispatch(self, command: Command, fds: list[int]) -> None:
        match command:
            case Attach():
                if len(fds) != 1:
                    raise InternalError(f"attach {command.key} came with {len(fds)} descriptors")
                self._attachments.attach(command, fds[0])
            case Detach():
                self._attachments.detach(command.keys)
            case CommandBatch():
                for one in command.commands:
                    self._dispatch(one, [])
            case Stop():
                close_all(fds)
            case _:
                self._threads[command.device].commands.put(command)


def end_with(parent: int) -> None:
    """Have the kernel end this process when its parent dies, and end now if it has."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="hetsched.device_process.main")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--spec", required=True)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the engine's to handle
    end_with(options.parent)
    sock = socket.socket(fileno=options.fd)
    sock.set_inheritable(False)
    status = live(DeviceHost(sock, msgspec.json.decode(options.spec, type=ProcessSpec)))
    # Not a normal exit: destructors of vendor libraries print and may hang.
    sys.stderr.flush()
    os._exit(status)


def live(host: DeviceHost) -> int:
    """The whole life of a device process; its exit status."""
    try:
        host.open()
        # What was made so far lives as long as the process: the collector needn't look at it.
        gc.collect()
        gc.freeze()
        if host.serve():
            host.stop()
    except HetschedError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the engine reads it
        return error.code
    except Exception:
        traceback.print_exc()
        return InternalError.code
    return 0


if __name__ == "__main__":
    main()
