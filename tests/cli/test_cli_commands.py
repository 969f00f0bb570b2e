from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


def test_a_terminal_without_unicode_gets_escapes(
    shell: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    Path("µ—.toml").write_text('[[device]]\nkind = "cpu"\n')
    assert shell("config", "path", "µ—.toml").out.endswith("\\xb5\\u2014.toml\n")
    assert "\\xb5\\u2014.txt" in shell("config", "path", "µ—.txt").error


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
