from __future__ import annotations

import socket
import stat
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from served import Daemon

from hetsched.cli.commands.metrics import parse_address
from hetsched.errors import UsageError

from .conftest import COMMAND, Call


def test_prometheus_reads_the_text(call: Call, daemon: Daemon) -> None:
    families = list(text_string_to_metric_families(call("metrics").out))

    assert {"hetsched_jobs", "hetsched_loop_longest_callback_seconds"} <= {
        family.name for family in families
    }
    assert all(family.documentation and family.type != "unknown" for family in families)


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("127.0.0.1:9469", (socket.AF_INET, ("127.0.0.1", 9469))),
        ("localhost:1", (socket.AF_INET, ("127.0.0.1", 1))),
        ("127.1.2.3:0", (socket.AF_INET, ("127.1.2.3", 0))),
        ("[::1]:9469", (socket.AF_INET6, ("::1", 9469))),
        ("unix:/run/m.sock", (socket.AF_UNIX, "/run/m.sock")),
    ],
)
def test_addresses_on_this_machine(address: str, parsed: tuple[int, object]) -> None:
    assert parse_address(address) == parsed


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0:9469", "[::]:9469", "10.0.0.1:80", "example.org:80", "9469", "127.0.0.1:", "unix:",
     "127.0.0.1:65536", "127.0.0.1:-1", "", "::1"],
)  # fmt: skip
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(UsageError, match=r"give 127\.0\.0\.1:9469"):
        parse_address(address)


def test_metrics_are_served_on_a_unix_socket_of_the_user(daemon: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "m.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    command = [*COMMAND, "metrics", "--serve", f"unix:{path}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        assert "serving metrics" in server.stderr.readline()
        answers = [scrape(path), scrape(path)]
        mode = stat.S_IMODE(path.stat().st_mode)
        server.send_signal(2)

    assert all("\nhetsched_up 1.0\n" in answer for answer in answers)
    assert (mode, server.returncode, path.exists()) == (0o600, 130, False)


def test_an_address_in_use_is_73(call: Call, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "m.sock"))
        other.listen()
        ended = call("metrics", "--serve", f"unix:{tmp_path / 'm.sock'}")

    assert (ended.code, ended.error.endswith("Address already in use")) == (73, True)


def scrape(path: Path) -> str:
    """One request of Prometheus, as text."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(str(path))
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: client.recv(65536), b"")).decode()
