"""What the README and the pages for users show works: snippets and commands, run as they stand."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import HETSCHED, call_here, serving

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "docs/tutorial.md",
    ROOT / "docs/workloads.md",
    ROOT / "docs/functions.md",
]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
SNIPPETS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^\$ (hetsched .*)$", TEXT, re.MULTILINE)
SMALLER = {
    "256x512x512": "8x512x512",
    "200x512x512": "8x512x512",
    "64x512x512": "8x512x512",
    "32x512x512": "8x512x512",
    "60x60x60": "20x20x20",
    "40": "8",
}
"""Arrays of the commands that would take long."""
BROKEN_PIPE = 141
"""Of the system, no error of ours."""


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, str]]:
    """The environment of a daemon with the default devices; some commands are about its job 1."""
    config = (ROOT / "configs/default.toml").read_text(encoding="utf-8")
    with serving(config, PATH=f"{Path(HETSCHED).parent}:/usr/bin:/bin") as daemon:
        assert daemon.call("submit", "fft", "--batch", "4x64x64").code == 0
        yield daemon.environment


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A current folder with the file that the commands read."""
    (tmp_path / "demo").mkdir()
    planes = np.random.default_rng(1).standard_normal((4, 64, 64)).astype("complex64")
    np.save(tmp_path / "demo/photographs.npy", planes)
    return tmp_path


def test_python_snippets_run(places: dict[str, str], folder: Path) -> None:
    """As scripts of their own, but one after the other in a process: imports take long."""
    paths = [folder / f"snippet{number}.py" for number in range(len(SNIPPETS))]
    for path, snippet in zip(paths, SNIPPETS, strict=True):
        path.write_text(snippet, encoding="utf-8")
    code = "import runpy, sys\nfor path in sys.argv[1:]: runpy.run_path(path, None, '__main__')"
    command = [sys.executable, "-W", "error", "-c", code, *map(str, paths)]
    found = subprocess.run(
        command, env=places, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )

    assert SNIPPETS and COMMANDS and found.returncode == 0, found.stderr


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_commands_work(
    command: str, places: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.chdir(folder)
    for name, value in places.items():
        monkeypatch.setenv(name, value)
    _, *words = (SMALLER.get(word, word) for word in shlex.split(command))
    ended = call_here(capfd, *words)

    assert ended.code == 0, ended.err


def test_the_exit_codes_are_those_of_the_errors() -> None:
    from hetsched.errors import HetschedError

    known = {kind.code for kind in HetschedError.__subclasses__()} | {0}
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|", page.split("## Exit codes")[1], re.MULTILINE)

    assert {int(code) for code in rows} - {BROKEN_PIPE} == known
