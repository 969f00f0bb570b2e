"""`benchmarks.gpu_check` works without a GPU, and a failing section affects no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import gpu_check

ROOT = Path(__file__).parent.parent.parent


def test_a_dry_run_writes_a_file_a_section(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--dry-run", "--out", str(tmp_path)]

    quick = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    subprocess.run(command, cwd=ROOT, check=True, timeout=120, env=quick)

    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [section["state"] for section in summary["sections"]] == ["done"] * len(
        gpu_check.SECTIONS
    )
    assert json.loads((tmp_path / "conformance.json").read_text())["wrong"] == 0
    assert len(json.loads((tmp_path / "jobs.json").read_text())["jobs"]) == 20
    assert len(json.loads((tmp_path / "pipeline.json").read_text())["runs"]) == 8
    streamed = json.loads((tmp_path / "streamed.json").read_text())
    assert all(case["is_equal"] for case in streamed["cases"])
    assert "gpu0: unusable" in json.loads((tmp_path / "faults.json").read_text())["device_fault"]


def run(name: str, out: Path, seconds: float) -> dict[str, object]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "workloads")])
    environment = dict(os.environ, PYTHONPATH=paths, XDG_CACHE_HOME=str(out))
    return gpu_check.run(name, out, True, environment, time.monotonic() + seconds)


def test_a_section_that_fails_says_so_in_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(gpu_check.SECTIONS, "nothing", 30.0)

    section = run("nothing", tmp_path, 60.0)

    assert section["state"] == "failed (1)"
    assert "ModuleNotFoundError" in json.loads((tmp_path / "nothing.json").read_text())["error"]


def test_a_section_that_takes_too_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_check, "LEAST", 0.0)

    assert run("conformance", tmp_path, 0.1)["state"] == "took too long"


def test_no_section_is_begun_without_time(tmp_path: Path) -> None:
    assert run("conformance", tmp_path, 1.0)["state"] == "no time left"
    assert list(tmp_path.iterdir()) == []
