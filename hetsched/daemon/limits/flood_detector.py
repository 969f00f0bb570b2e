"""Recognises connections that send without ever completing a message. Pure.

libzmq keeps the frames of an unfinished message in memory, however many there are: MAXMSGSIZE
limits each frame, no option their number. So memory is watched from outside: a connection is a
flood if data has been waiting on it for several samples, its process has completed no message
meanwhile, and this process has grown by more than the limit since.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

MIN_SAMPLES = 3
"""Successive samples with data waiting, less those without, that make a connection suspicious."""


@dataclass
class _Suspicion:
    memory: int
    samples: int = 0


class FloodDetector:
    """Connections under suspicion.

    Parameters
    ----------
    limit : int, bytes
        Growth of this process that is tolerated.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._suspicions: dict[int, _Suspicion] = {}

    @property
    def is_suspicious(self) -> bool:
        """Whether data waits on some connection without completed messages."""
        return bool(self._suspicions)

    def sample(
        self, pending: Mapping[int, int], active: Collection[int], memory: int
    ) -> list[int]:
        """Take a sample; return the connections to close.

        Parameters
        ----------
        pending : mapping
            Connection with data waiting to be read -> pid of its process.
        active : collection of int
            Pids from which a complete message came since the last sample.
        memory : int, bytes
            Private memory of this process.
        """
        for connection in list(self._suspicions):
            if connection not in pending or pending[connection] in active:
                self._relax(connection)
        for connection, pid in pending.items():
            if pid not in active:
                self._suspicions.setdefault(connection, _Suspicion(memory)).samples += 1
        for suspicion in self._suspicions.values():
            suspicion.memory = min(suspicion.memory, memory)  # that of an earlier flood is freed
        floods = [
            connection
            for connection, suspicion in self._suspicions.items()
            if suspicion.samples >= MIN_SAMPLES and memory - suspicion.memory > self._limit
        ]
        for connection in floods:
            del self._suspicions[connection]
        return floods

    def _relax(self, connection: int) -> None:
        suspicion = self._suspicions[connection]
        suspicion.samples -= 1
        if suspicion.samples <= 0:
            del self._suspicions[connection]
