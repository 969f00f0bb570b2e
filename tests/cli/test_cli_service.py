from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched.cli.commands.service import MARK, quoted, service_text

from .conftest import Call

SYSTEMCTL = """#!/bin/sh
shift 2  # --user --no-pager
echo "$*" >> "$FAKE/calls"
case "$1" in
is-active) test -e "$FAKE/active" ;;
enable) if [ -e "$FAKE/broken" ]; then echo "Job for hetsched.service failed" >&2; exit 1; fi
    touch "$FAKE/active" ;;
disable) rm -f "$FAKE/active" ;;
show) case "$2" in
    --property=Version) if [ -e "$FAKE/nobus" ]; then
        echo "Failed to connect to bus: No medium found" >&2; exit 1; fi
        echo Version=252 ;;
    *) if [ -e "$FAKE/active" ]; then
        echo "LoadState=loaded"; echo "UnitFileState=enabled"; echo "ActiveState=active"
        echo "SubState=running"; echo "MainPID=77"; echo "NRestarts=2"
        echo "StatusText=listening = here"
        else echo "LoadState=not-found"; echo "ActiveState=inactive"; fi ;;
    esac ;;
esac
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the fake systemctl's state; its `calls` are the commands it was given."""
    folder = tmp_path / "fake"
    folder.mkdir()
    program = folder / "systemctl"
    program.write_text(SYSTEMCTL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "etc"))
    monkeypatch.setenv("HETSCHED_RUNTIME_DIR", str(tmp_path / "run"))
    yield folder


def units(tmp_path: Path) -> Path:
    return tmp_path / "etc" / "systemd" / "user"


def calls(fake: Path) -> list[str]:
    return [line for line in (fake / "calls").read_text().splitlines() if "show" not in line]


def test_install_writes_enables_and_starts(call: Call, fake: Path, tmp_path: Path) -> None:
    ended = call("service", "install", "--config", "cpu-only")

    assert ended.code == 0
    assert calls(fake)[-2:] == ["daemon-reload", "enable --now hetsched.socket hetsched.service"]
    service = (units(tmp_path) / "hetsched.service").read_text()
    assert service.startswith(MARK)
    assert "serve --config cpu-only\n" in service
    assert f"Environment=HETSCHED_STATE_DIR={os.environ['HETSCHED_STATE_DIR']}\n" in service
    socket_unit = (units(tmp_path) / "hetsched.socket").read_text()
    assert f"ListenStream={os.environ['HETSCHED_RUNTIME_DIR']}/control.sock\n" in socket_unit


def test_a_second_install_changes_nothing_or_says_restart(call: Call, fake: Path) -> None:
    call("service", "install")
    again = call("service", "install")
    changed = call("service", "install", "--config", "cpu-only")

    assert (again.code, again.out.count("unchanged")) == (0, 2)
    assert "until: systemctl --user restart hetsched" in changed.out


def test_a_dry_run_shows_the_units_and_does_nothing(
    call: Call, fake: Path, tmp_path: Path
) -> None:
    ended = call("service", "install", "--dry-run")

    assert ended.code == 0
    assert "ExecStart=" in ended.out
    assert "ListenSequentialPacket=" in ended.out
    assert call("service", "install", "--config", "nonsense").code == 66
    assert not (fake / "calls").exists()
    assert not units(tmp_path).exists()


def test_uninstall_stops_the_socket_first_and_removes_both(
    call: Call, fake: Path, tmp_path: Path
) -> None:
    call("service", "install")
    (fake / "calls").unlink()
    ended = call("service", "uninstall")

    assert ended.code == 0
    assert calls(fake) == [
        "disable --now hetsched.socket",
        "disable --now hetsched.service",
        "daemon-reload",
    ]
    assert list(units(tmp_path).iterdir()) == []
    assert call("service", "uninstall").out == "not installed\n"


def test_the_status_without_a_service_is_69_and_of_a_running_one_0(call: Call, fake: Path) -> None:
    ended = call("service", "status", "--json")
    record = json.loads(ended.out)
    assert (ended.code, record["running"], record["schema"]) == (69, False, "hetsched.service/1")

    call("service", "install")
    ended = call("service", "status")
    row = ended.out.splitlines()[2].split(maxsplit=4)
    assert row[:4] == ["hetsched.service", "enabled", "active", "(running)"]
    assert (ended.code, row[4]) == (0, "pid 77, 2 restarts, listening = here")


@pytest.mark.parametrize("command", ["install", "status"])
def test_without_a_service_manager_of_the_user_the_code_is_69(
    call: Call, fake: Path, command: str
) -> None:
    (fake / "nobus").touch()
    ended = call("service", command)

    assert ended.code == 69
    assert ended.error == (
        "systemctl --user show --property=Version: Failed to connect to bus: No medium found;"
        " `hetsched serve` needs no systemd"
    )


def test_a_service_that_fails_to_start_is_reported(call: Call, fake: Path) -> None:
    (fake / "broken").touch()
    ended = call("service", "install")

    assert ended.code == 69
    assert "enable --now hetsched.socket hetsched.service: Job for hetsched.s" in ended.error


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_another_unit_of_that_name_is_kept(
    call: Call, fake: Path, tmp_path: Path, command: str
) -> None:
    units(tmp_path).mkdir(parents=True)
    mine = units(tmp_path) / "hetsched.service"
    mine.write_text("[Service]\n")
    ended = call("service", command)

    assert (ended.code, mine.read_text()) == (73, "[Service]\n")
    assert "not written by hetsched" in ended.error


def test_a_daemon_in_a_terminal_keeps_its_sockets(call: Call, fake: Path) -> None:
    runtime = Path(os.environ["HETSCHED_RUNTIME_DIR"])
    runtime.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
        daemon.bind(str(runtime / "session.sock"))
        daemon.listen()
        ended = call("service", "install")

    assert ended.code == 78
    assert "a daemon runs already" in ended.error


def test_words_are_quoted_as_systemd_reads_them() -> None:
    assert quoted("/opt/hetsched/bin/hetsched") == "/opt/hetsched/bin/hetsched"
    assert quoted("/home/a b/hetsched") == '"/home/a b/hetsched"'
    assert quoted("100%") == "100%%"
    assert quoted('say "no"\\') == '"say \\"no\\"\\\\"'
    text = service_text("[Unit]\nExecStart=x\n", ["/a$b", "serve"], {"HETSCHED_CONFIG": "c$d"})
    assert 'ExecStart="/a$$b" serve\nEnvironment="HETSCHED_CONFIG=c$d"\n' in text
