"""The threads of one device: one for the main job and, on a core, one for side jobs.

Both threads of a core are pinned to it, so the operating system divides the core between them: a
side job starts within milliseconds at any time, and the main job keeps half of the core.
"""

from __future__ import annotations

from collections.abc import Callable

from hetsched.device import DeviceInfo
from hetsched.device_process.attachments import Attachments
from hetsched.device_process.device_thread import DeviceThread
from hetsched.device_process.memory_upkeep import WARM_SECONDS
from hetsched.device_process.shared_tails import SharedTails
from hetsched.devices.base import Device, ShareableDevice
from hetsched.errors import HetschedError
from hetsched.transport.device_messages import DeviceCommand, Event, Fence, Prepare, Release

OnOpened = Callable[[int, DeviceInfo | HetschedError], None]


class DeviceThreads:
    """The threads of one device. Parameters as those of `DeviceThread`."""

    def __init__(
        self,
        index: int,
        info: DeviceInfo,
        open_device: Callable[[DeviceInfo], Device],
        attachments: Attachments,
        send: Callable[[Event], None],
        on_opened: OnOpened,
        tails: SharedTails | None = None,
        warm_for: float = WARM_SECONDS,
    ) -> None:
        self._main = DeviceThread(
            index, info, open_device, attachments, send, on_opened, tails, warm_for
        )
        self._side: DeviceThread | None = None
        self._is_plain_core = info.is_plain_core
        self._make_side = lambda open_beside: DeviceThread(
            index, info, open_beside, attachments, send, on_opened
        )
        self._side_jobs: set[int] = set()

    def start(self) -> None:
        """Start the thread of the main job, which opens the device."""
        self._main.start()

    def start_side(self) -> bool:
        """Start the thread of side jobs, once the device is open; return whether there is one."""
        device = self._main.device
        if not (self._is_plain_core and isinstance(device, ShareableDevice)):
            return False
        self._side = self._make_side(lambda info: device.beside())
        self._side.start()
        return True

    @property
    def idents(self) -> tuple[int, ...]:
        """The identifiers of the running threads."""
        return tuple(thread.ident for thread in self._threads if thread.ident is not None)

    def handle(self, command: DeviceCommand) -> None:
        """Pass a command to the thread of its job."""
        if isinstance(command, Prepare) and command.side and self._side is not None:
            self._side_jobs.add(command.job)
        if command.job not in self._side_jobs:
            self._main.commands.put(command)
            return
        assert self._side is not None, "it has side jobs"
        self._side.commands.put(command)
        if isinstance(command, Release | Fence):
            self._side_jobs.discard(command.job)

    def on_detached(self) -> None:
        """Have the device forget host memory that was detached."""
        self._main.on_detached()

    def stop(self) -> None:
        """End the threads once they have handled their commands."""
        for thread in self._threads:
            thread.commands.put(None)

    def join(self, seconds: float) -> None:
        """Wait for the end of each thread, no longer than `seconds`."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(seconds)

    @property
    def _threads(self) -> tuple[DeviceThread, ...]:
        return (self._main,) if self._side is None else (self._main, self._side)
