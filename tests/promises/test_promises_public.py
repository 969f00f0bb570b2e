"""This suite knows hetsched as its users do: no test of it imports anything else."""

from __future__ import annotations

import ast
from pathlib import Path

PUBLIC = {"hetsched", "hetsched.errors", "hetsched.workload", "hetsched.memory"}


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_no_test_here_imports_anything_internal() -> None:
    here = Path(__file__).parent
    helpers = ("served.py", "toys.py", "tuned_toy.py", "wrong_plug_ins.py")
    paths = [*here.glob("*.py"), *(here.parent / name for name in helpers)]
    modules = set().union(*map(imported, paths))
    ours = {name for name in modules if name.startswith(("hetsched", "hetsched_workloads"))}
    assert ours <= PUBLIC
