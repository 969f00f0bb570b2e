"""Closes connections of the ZeroMQ socket that make the daemon grow (`flood_detector.py`).

libzmq reports the descriptor of each connection that it accepts. The descriptors stay libzmq's:
here they are only asked how much data waits, and shut down at worst, after which libzmq frees all
that it had received. The client's libzmq connects again.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import logging
import os
import select
import socket
import termios

import zmq
from zmq.utils.monitor import parse_monitor_message

from hetsched.daemon.limits.flood_detector import FloodDetector
from hetsched.transport.loop import Loop
from hetsched.transport.sockets import Peer, socket_peer

log = logging.getLogger(__name__)

SAMPLE_SECONDS, SUSPICIOUS_SECONDS = 0.1, 0.02
"""Between samples while there are connections, and while one is suspicious: libzmq reads 200 to
1000 MiB/s."""
MAX_GROWTH = 32 << 20
"""Bytes of unfinished messages that are tolerated. Arbitrary; the longest message has 1 MiB."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
STATM_BYTES = 256
"""More than the seven numbers of /proc/self/statm take."""
MONITOR = "inproc://hetsched.connections"


class _Connection:
    """A connection that libzmq accepted; the inode tells whether the descriptor is still its."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.inode = os.fstat(fd).st_ino
        with self._duplicate() as sock:
            self.peer: Peer = socket_peer(sock)

    @property
    def is_open(self) -> bool:
        try:
            return os.fstat(self.fd).st_ino == self.inode
        except OSError:
            return False

    def waiting_bytes(self) -> int:
        count = array.array("i", [0])
        try:
            fcntl.ioctl(self.fd, termios.FIONREAD, count)
        except OSError:
            return 0
        return count[0]

    def shut_down(self) -> None:
        """End the connection; libzmq sees the end of file and closes its descriptor."""
        with contextlib.suppress(OSError), self._duplicate() as sock:
            if os.fstat(sock.fileno()).st_ino == self.inode:
                sock.shutdown(socket.SHUT_RDWR)

    def _duplicate(self) -> socket.socket:
        """Return a socket on a copy of the descriptor.

        Raises OSError if it isn't a socket: the number may be another file's by now.
        """
        copy = os.dup(self.fd)
        try:
            return socket.socket(fileno=copy)
        except OSError:
            os.close(copy)
            raise


class ConnectionGuard:
    """Watches the connections of one socket. Lives on the loop's thread.

    Parameters
    ----------
    router : zmq.Socket
        Not yet bound, so that no connection is missed.
    """

    def __init__(self, loop: Loop, router: zmq.Socket[bytes]) -> None:
        self._loop = loop
        self._router = router
        self._detector = FloodDetector(MAX_GROWTH)
        self._connections: dict[int, _Connection] = {}
        self._active: set[int] = set()
        self._poll = select.poll()
        """For all connections; the closed ones among them have events, too."""
        self._has_new = False
        """Connections were accepted since the last sample, perhaps with descriptors of others."""
        self._is_sampling = False
        router.monitor(MONITOR, zmq.EVENT_ACCEPTED)
        self._monitor = router.context.socket(zmq.PAIR)
        self._monitor.set(zmq.LINGER, 0)
        self._monitor.connect(MONITOR)
        loop.add_reader(self._monitor, self._on_accepted)

    def __len__(self) -> int:
        """Return the number of open connections, as of the last sample."""
        return len(self._connections)

    def note_message(self, peer: Peer) -> None:
        """Note that a complete message came from `peer`."""
        self._active.add(peer.pid)

    def close(self) -> None:
        self._loop.remove_reader(self._monitor)
        self._router.disable_monitor()
        self._monitor.close()
        self._connections.clear()

    def _on_accepted(self) -> None:
        with contextlib.suppress(zmq.Again):
            while True:
                event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
                with contextlib.suppress(OSError):  # it has been closed again
                    connection = _Connection(event["value"])
                    self._connections[connection.inode] = connection
                    self._poll.register(connection.fd, select.POLLIN)
                    self._has_new = True
        if self._connections and not self._is_sampling:
            self._is_sampling = True
            self._loop.call_later(SAMPLE_SECONDS, self._sample)

    def _sample(self) -> None:
        """Disconnect floods; sample again while there are connections.

        Mostly no data waits anywhere: then one call of the system is enough, ten times a second
        on a core that computes.
        """
        try:
            if self._has_new or self._detector.is_suspicious or self._has_event():
                self._disconnect_floods()
                self._has_new = False
        except OSError as error:  # no descriptor is left: the next sample may have one
            log.warning("connections can't be examined now: %s", error)
        self._active.clear()
        self._is_sampling = bool(self._connections)
        if self._is_sampling:
            is_suspicious = self._detector.is_suspicious
            self._loop.call_later(
                SUSPICIOUS_SECONDS if is_suspicious else SAMPLE_SECONDS, self._sample
            )

    def _has_event(self) -> bool:
        """Return whether data waits on a connection, or one was closed."""
        return bool(self._poll.poll(0))

    def _remove_closed(self) -> None:
        for connection in list(self._connections.values()):
            if not connection.is_open:
                del self._connections[connection.inode]
                with contextlib.suppress(KeyError):
                    self._poll.unregister(connection.fd)
        for connection in self._connections.values():  # descriptors of closed ones are reused
            self._poll.register(connection.fd, select.POLLIN)

    def _disconnect_floods(self) -> None:
        self._remove_closed()
        pending = {
            inode: connection.peer.pid
            for inode, connection in self._connections.items()
            if connection.waiting_bytes()
        }
        for inode in self._detector.sample(pending, self._active, private_memory()):
            connection = self._connections[inode]
            log.warning(
                "disconnected pid %d: it sends a message without end (over %d MiB)",
                connection.peer.pid,
                MAX_GROWTH >> 20,
            )
            connection.shut_down()


def private_memory() -> int:
    """Return this process's resident bytes that aren't shared with files or other processes.

    Raises OSError if no descriptor is left.
    """
    fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)  # ten times a second: no Path
    try:
        resident, shared = os.read(fd, STATM_BYTES).split()[1:3]
    finally:
        os.close(fd)
    return (int(resident) - int(shared)) * PAGE_BYTES
