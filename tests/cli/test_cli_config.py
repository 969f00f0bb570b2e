from __future__ import annotations

import os
import sqlite3
import tomllib
from pathlib import Path

import pytest
from served import Daemon, refused

from hetsched.cli.commands import doctor
from hetsched.errors import Unavailable

from .conftest import Call

RESTRICTION = "cpu0: takes no jobs of kind faulty"


@pytest.mark.parametrize("name", ["default", "emulated-gpu"])
def test_a_configuration_is_shown_as_a_file_that_is_valid(call: Call, name: str) -> None:
    shown = call("config", "show", name).out
    tables = tomllib.loads(shown)
    assert (tables["stealing"], tables["deadlines"]["stop"]) == (True, "60s")
    Path("shown.toml").write_text(shown)
    assert call("config", "check", "shown.toml").code == 0
    again = call("config", "show", "shown.toml").out
    assert again.splitlines()[1:] == shown.splitlines()[1:]


def test_a_first_configuration_is_written_where_it_is_read(call: Call) -> None:
    written = call("config", "init")
    path = call("config", "path").out.strip()
    assert (written.code, path.endswith("hetsched/config.toml")) == (0, True)
    assert f"wrote {path}; " in written.err
    assert call("config", "check").code == 0
    assert call("config", "init").code == 73
    assert call("config", "init", "--force").code == 0
    assert call("config", "init", "mine.toml").code == 0
    assert Path("mine.toml").read_text() == Path(path).read_text()


def test_a_configuration_that_asks_for_more_than_there_is_is_named(call: Call) -> None:
    Path("more.toml").write_text('[[device]]\nkind = "cpu"\ncount = 4096\n')
    job = "fft --batch 2x8x8 --config"
    commands = "config check", "devices --config", "doctor --config", f"run {job}", f"plan {job}"
    for command in commands:
        ended = call(*command.split(), "more.toml")
        assert ended.code == 78
        assert "more.toml: device[0].count: 4096 cores requested" in ended.out + ended.err


def test_a_machine_profile_is_checked_too(call: Call) -> None:
    load = "units = 8\ninput_bytes = 8\noutput_bytes = 8"
    Path("m.toml").write_text(f"[load]\n{load}\n[[device]]\nkind = 'cpu'\n")
    ended = call("config", "check", "m.toml")
    assert (ended.code, "device[0]: a modelled device needs compute" in ended.error) == (78, True)


def test_a_team_is_listed_only_where_it_works(call: Call) -> None:
    for words in ("devices --config default", "doctor", "config check default"):
        ended = call(*words.split())
        assert "cpu0" in ended.out and "team0" not in ended.out


# ---- devices of the daemon


def test_devices_that_take_no_jobs_are_named_until_a_probe(daemon: Daemon, call: Call) -> None:
    with daemon.client() as client, refused(1, "SIGSEGV"):
        client.submit("toys:Faulty", units=1, fault="segfault").result(60)
    for command in ("devices", "status"):
        assert RESTRICTION in call(command).out

    ended = call("devices", "--probe")

    assert ended.code == 0
    assert "cpu0" in ended.out and RESTRICTION not in ended.out
    assert RESTRICTION not in call("status").out


def test_changes_are_for_a_daemon(call: Call) -> None:
    for flags, code, said in (
        ("--probe", 69, "no daemon"),
        ("--disable cpu0", 69, "no daemon"),
        ("--disable cpu0 --config cpu-only", 2, "--disable is for the daemon"),
    ):
        ended = call("devices", *flags.split())
        assert (ended.code, said in ended.error) == (code, True)


def test_a_running_daemons_own_devices_are_listed(daemon: Daemon, call: Call) -> None:
    listed = call("devices", "--json").json
    assert listed["config"] == "daemon"
    assert listed["devices"] == call("devices", "--probe", "--json").json["devices"]
    assert call("devices", "--config", "cpu-only", "--json").json["config"] != "daemon"


def test_devices_are_disabled_and_enabled(daemon: Daemon, call: Call) -> None:
    for words in ("devices --disable cpu0", "devices"):
        assert "cpu0: not available: disabled" in call(*words.split()).out
    rows = {line[4:].split("  ")[0].strip(): line for line in call("doctor").out.splitlines()}
    assert f"pid {daemon.process.pid}, version " in rows["daemon"]
    assert "takes no jobs: disabled" in rows["daemon: cpu0"]
    with daemon.client() as client, refused(69, "cpu0"):
        client.submit("toys:Toy", units=1, devices="cpu0").result(60)

    assert "disabled" not in call("devices", "--enable", "cpu0", "--probe").out
    unknown = call("devices", "--disable", "cpu0,cpu9")
    assert (unknown.code, "no device 'cpu9'" in unknown.error) == (2, True)
    with daemon.client() as client:
        assert client.submit("toys:Toy", units=1, devices="cpu0").result(60).shape == (1, 4)


# ---- doctor


def test_what_is_installed_is_listed_in_100_columns(call: Call) -> None:
    ended = call("doctor")
    lines = ended.out.splitlines()
    assert ended.code == 0
    words = {line.split()[1] for line in lines if line.startswith("ok")}
    assert words >= {"python", "numpy", "numba", "nvidia-ml-py", "cupy-cuda12x", "libzmq", "cores"}
    assert all(len(line) <= 100 for line in lines if "/" not in line)


def test_a_wrong_configuration_is_one_problem_and_the_code(call: Call) -> None:
    Path("wrong.toml").write_text("nonsense = 3\n")
    ended = call("doctor", "--config", "wrong.toml", "--json")
    problems = [one["what"] for one in ended.json["findings"] if one["code"]]
    assert (ended.code, ended.json["code"], problems) == (78, 78, ["config"])


def test_devices_that_cannot_be_had_are_no_trouble_with_the_configuration(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(config: object) -> None:
        raise Unavailable("gpu0: no NVIDIA driver")

    monkeypatch.setattr("hetsched.devices.probe.probe", none)
    codes = {one["what"]: one["code"] for one in call("doctor", "--json").json["findings"]}
    assert (codes["config"], codes["devices"]) == (0, 69)


@pytest.mark.parametrize(
    ("soft_and_hard", "said"),
    [((1024, 20000), "1024, a daemon raises that to 20000"), ((64, 256), "low: jobs are refused")],
)
def test_limits_of_descriptors_are_pointed_out(
    soft_and_hard: tuple[int, int], said: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda which: soft_and_hard)
    assert said in call("doctor").out


def test_the_journal_is_reported_or_a_problem(call: Call) -> None:
    journal = Path(os.environ["HETSCHED_STATE_DIR"]) / "journal.db"
    journal.parent.mkdir(parents=True)
    assert f"{journal}: none yet" in " ".join(call("doctor").out.split())

    with sqlite3.connect(journal) as database:
        database.execute("CREATE TABLE t(x)")
    database.close()
    assert f"{journal}: 8 KiB, written" in " ".join(call("doctor").out.split())

    journal.write_bytes(b"x" * 200)
    ended = call("doctor")
    assert (ended.code, "PROBLEM  journal" in ended.out) == (78, True)
