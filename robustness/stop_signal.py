"""SIGTERM at the moment when clients disconnect: the daemon always stops, with exit status 0."""

from __future__ import annotations

import socket
from pathlib import Path

from benchmarks.results import Bar, Result
from robustness.daemon import CORES, daemon
from robustness.scale import Scale

CLIENTS = 20
STOP_SECONDS = 20.0
"""After this the signal counts as lost: an idle daemon stops in well under a second."""


def measure(scale: Scale) -> Result:
    rounds = scale.of(3, 30, 200)
    result = Result(
        "stop_signal",
        "SIGTERM while clients disconnect",
        ("daemons stopped", "signals lost or exit status not 0"),
    )
    statuses = scale.map(lambda _: _stopped_while_disconnecting(), range(rounds))
    failures = sum(status != 0 for status in statuses)
    result.rows.append((str(rounds), str(failures)))
    result.data.append({"rounds": rounds, "statuses": statuses})
    result.bars.append(Bar("signals lost", failures, 0, at_least=False))
    return result


def _stopped_while_disconnecting() -> int | None:
    with daemon(CORES) as served:
        clients = [_connect(served.folder) for _ in range(CLIENTS)]
        for index, client in enumerate(clients):
            if index == CLIENTS // 2:
                assert served.process is not None
                served.process.terminate()
            client.close()
        return served.wait(STOP_SECONDS)


def _connect(folder: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.connect(str(folder / "session.sock"))
    return client
