"""This suite knows hetsched as its users do: no test of it imports anything else."""

from __future__ import annotations

import re
from pathlib import Path

PUBLIC = {"hetsched", "hetsched.errors", "hetsched.workload", "hetsched.memory"}


def test_no_test_here_imports_anything_internal() -> None:
    here = Path(__file__).parent
    helpers = ("served", "toys", "diffusing_workload", "tuned_toy", "wrong_plug_ins")
    paths = [*here.glob("*.py"), *(here.parent / f"{name}.py" for name in helpers)]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    assert set(re.findall(r"^\s*(?:from|import) (hetsched[\w.]*)", text, re.MULTILINE)) <= PUBLIC
