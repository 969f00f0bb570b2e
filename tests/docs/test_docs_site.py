"""The site of the documentation is built without a warning: every link and every name is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def test_the_site_is_built_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]

    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    assert "submit" in (tmp_path / "reference.html").read_text(encoding="utf-8")
    assert "gantt.png" in (tmp_path / "index.html").read_text(encoding="utf-8")
