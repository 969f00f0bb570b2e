"""A device loop in a thread of this process: its kernels work on the caller's own arrays."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import Any

import numpy as np

from hetsched.device_process.device_loop import DeviceLoop
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.probe import ProcessSpec, open_device
from hetsched.engine.processes.link import DeviceLink, processor_ticks
from hetsched.errors import text_of
from hetsched.transport import device_messages
from hetsched.transport.arena import Segment


class DeviceThread(DeviceLink):
    """A running device thread. One that hangs can't be killed; it ends when it hears again.

    It isn't pinned: pools of threads that libraries start in it would be, too, for the rest of the
    caller's program.
    """

    def __init__(self, spec: ProcessSpec) -> None:
        super().__init__()
        self.pid = os.getpid()
        self._failure = ""
        self._handed: dict[int, Any] = {}  # Arrays by key that the loop has not taken over yet
        self.end_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.name = f"hetsched {spec.device.name}"
        self._thread = threading.Thread(
            target=self._run, args=(spec,), name=self.name, daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads
            self._loop_end.close()
            self._sock.close()
            os.close(self.end_fd)
            raise OSError(str(error)) from error

    def _run(self, spec: ProcessSpec) -> None:
        try:
            channel = device_messages.Channel(self._loop_end, list[device_messages.Command])
            with np.errstate(all="ignore"):  # verification finds NaN; functions bring their own
                device = open_device(spec)
                DeviceLoop(channel, device, spec.warm_for, self._handed).run()
                if isinstance(device, Accelerator):  # which has pinned memory of this process
                    device.close()
        except BaseException as error:
            self._failure = f"{type(error).__name__}: {text_of(error)}"
        finally:
            self._loop_end.close()
            os.eventfd_write(self.end_fd, 1)

    def attach_segment(self, segment: Segment) -> None:
        self.hand_over(segment.id, segment.memory())

    def hand_over(self, key: int, value: Any) -> None:
        self._handed[key] = value
        self.send(device_messages.Attach(key, "handed", 0))
        self.attached.add(key)

    def _processor_ticks(self) -> int:
        return processor_ticks(f"/proc/self/task/{self._thread.native_id}/stat")

    def kill(self) -> None:
        with contextlib.suppress(OSError):  # closed
            self._sock.shutdown(socket.SHUT_RDWR)

    def join(self, grace: float, kill_grace: float) -> bool:
        self._thread.join(grace + kill_grace)
        if self._thread.is_alive():
            return False
        self.close()
        return True

    def _reap(self) -> None:
        self._thread.join()

    def _release(self) -> None:
        self._handed.clear()

    def exit_reason(self) -> str:
        self.close()
        return self._failure or "its thread has ended"
