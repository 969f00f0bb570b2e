from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hetsched.errors import Unavailable

from .conftest import COMMAND, Call


def test_run_shows_a_table(call: Call) -> None:
    ended = call("run", "fft", "--batch", "8x16x16", "--verify", "--config", "cpu-only")

    assert ended.code == 0
    assert ended.out.splitlines()[0].split() == [
        "device", "variant", "(library)", "share", "seconds", "units/s", "predicted"
    ]  # fmt: skip
    assert "verified: all units correct" in ended.out
    running, done = ended.err.splitlines()
    assert (running, done[:7]) == ("running 1", "done 1 ")


def test_doctor_ends_with_the_code_of_the_first_problem(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").touch()
    monkeypatch.setenv("HETSCHED_STATE_DIR", "file/state")

    ended = call("doctor", "--json")

    record = json.loads(ended.out)
    assert ended.code == record["code"] == 78


def test_doctor_says_once_that_a_configuration_is_wrong(call: Call) -> None:
    Path("wrong.toml").write_text("nonsense = 3\n")

    ended = call("doctor", "--config", "wrong.toml", "--json")

    problems = [one for one in json.loads(ended.out)["findings"] if one["code"]]
    assert (ended.code, [one["what"] for one in problems]) == (78, ["config"])


def test_devices_that_cannot_be_had_are_no_trouble_with_the_configuration(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(config: object) -> None:
        raise Unavailable("gpu0: no NVIDIA driver")

    monkeypatch.setattr("hetsched.devices.probe.probe", none)

    found = json.loads(call("doctor", "--json").out)["findings"]

    codes = {one["what"]: one["code"] for one in found}
    assert (codes["config"], codes["devices"]) == (0, 69)


def test_a_team_is_listed_only_where_it_works(call: Call) -> None:
    for words in ("devices --config default", "doctor", "config check default"):
        ended = call(*words.split())
        assert "cpu0" in ended.out
        assert "team0" not in ended.out


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


@pytest.mark.parametrize("command", ["config check", "devices --config", "doctor --config",
                                     "run fft --batch 2x8x8 --config",
                                     "plan fft --batch 2x8x8 --config"])  # fmt: skip
def test_a_configuration_that_asks_for_more_than_there_is_is_named(
    call: Call, command: str
) -> None:
    Path("more.toml").write_text('[[device]]\nkind = "cpu"\ncount = 4096\n')

    ended = call(*command.split(), "more.toml")

    assert ended.code == 78
    assert "more.toml: device[0].count: 4096 cores requested" in ended.out + ended.err


def test_a_machine_profile_is_checked_too(call: Call) -> None:
    load = "units = 8\ninput_bytes = 8\noutput_bytes = 8"
    Path("m.toml").write_text(f"[load]\n{load}\n[[device]]\nkind = 'cpu'\n")
    ended = call("config", "check", "m.toml")
    assert (ended.code, "device[0]: a modelled device needs compute" in ended.error) == (78, True)


@pytest.mark.parametrize("name", ["y.csv", "b=a/y.png"])
def test_results_have_the_name_of_a_format(call: Call, name: str) -> None:
    for words in (("run", "fft", "--batch", "2x8x8", "--output"), ("result", "1", "-o")):
        ended = call(*words, name)
        assert (ended.code, "the name must end with .npy, .zarr" in ended.error) == (2, True)


def test_a_bug_of_ours_is_one_line_too(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str | None = None) -> None:
        raise ZeroDivisionError("oh\nno")

    monkeypatch.setattr("hetsched.cli.commands.config.load", broken)

    ended = call("devices")

    assert ended.code == 70
    assert ended.err.count("\n") == 1
    assert "a bug in hetsched: ZeroDivisionError: oh\\nno" in ended.err


def test_a_full_disk_behind_standard_output_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "--version"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert done.returncode == 74
    assert done.stderr == "error: standard output: No space left on device\n"


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--version"], {"typer", "rich", "numpy", "zmq"}),
        (["status"], {"rich", "numpy", "scipy", "apsw"}),
        (["run", "fft", "--batch", "4x4"], {"rich", "numpy", "scipy", "zmq"}),
    ],
)
def test_what_a_command_does_not_need_is_not_imported(words: list[str], heavy: set[str]) -> None:
    code = (
        "import sys; from hetsched.cli.main import main; main(sys.argv[1:]);"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )

    assert heavy & set(done.stdout.split()) == set()
