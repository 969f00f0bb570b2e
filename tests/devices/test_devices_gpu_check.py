from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
    assert len(json.loads((tmp_path / "jobs.json").read_text())["jobs"]) == 12
    assert len(json.loads((tmp_path / "pipeline.json").read_text())["runs"]) == 8
    streamed = json.loads((tmp_path / "streamed.json").read_text())
    assert all(case["is_equal"] for case in streamed["cases"])
    assert "gpu0: unusable" in json.loads((tmp_path / "faults.json").read_text())["device_fault"]
