from __future__ import annotations

import json

import pytest
from served import Daemon, refused

from .conftest import Call

DEVICES = """
[[device]]
kind = "cpu"
count = 1
team = false
[[device]]
kind = "gpu"
optional = true
"""
RESTRICTION = "cpu0: takes no jobs of kind faulty"


def test_devices_that_take_no_jobs_are_named_until_a_probe(daemon: Daemon, call: Call) -> None:
    with daemon.client() as client, refused(1, "SIGSEGV"):
        client.submit("toys:Faulty", units=1, fault="segfault").result(60)
    for command in ("devices", "status"):
        assert RESTRICTION in call(command).out

    ended = call("devices", "--probe")

    assert ended.code == 0
    assert "cpu0" in ended.out and RESTRICTION not in ended.out
    assert RESTRICTION not in call("status").out


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        ("--probe", 69, "no daemon"),
        ("--disable cpu0", 69, "no daemon"),
        ("--probe --config cpu-only", 2, "no --config"),
        ("--disable cpu0 --config cpu-only", 2, "--disable is for the daemon"),
    ],
)
def test_changes_are_for_a_daemon(flags: str, code: int, said: str, call: Call) -> None:
    ended = call("devices", *flags.split())
    assert (ended.code, said in ended.error) == (code, True)


def test_a_running_daemons_own_devices_are_listed(daemon: Daemon, call: Call) -> None:
    listed = json.loads(call("devices", "--json").out)
    probed = json.loads(call("devices", "--probe", "--json").out)

    assert (listed["config"], listed["devices"]) == ("daemon", probed["devices"])
    assert json.loads(call("devices", "--config", "cpu-only", "--json").out)["config"] != "daemon"


def test_devices_are_disabled_and_enabled(daemon: Daemon, call: Call) -> None:
    assert "cpu0: not available: disabled" in call("devices", "--disable", "cpu0").out
    assert "cpu0: not available: disabled" in call("devices").out

    assert "disabled" not in call("devices", "--enable", "cpu0", "--probe").out
    unknown = call("devices", "--disable", "cpu0,cpu9")
    assert (unknown.code, "no device 'cpu9'" in unknown.error) == (2, True)
