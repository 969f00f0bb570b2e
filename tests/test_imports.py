"""Imports point one way, and late ones are what STYLE allows: a walk over the syntax trees."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent

LAYERS = [
    {"models"},
    {"partition"},
    {"plans", "cluster"},
    {"planner", "dispatch"},
    {"simulate", "devices", "transport", "store"},
    {"jobs", "device_process"},
    {"engine"},
    {"daemon", "client"},
    {"local", "testing", "plots"},
    {"functions"},
    {"hosts"},
    {"fft", "__main__"},
    {"cli"},
]
"""Rooms of `hetsched`, each above those that it may import. The nouns lie below them all."""

NARROW = {"client": {"transport", "client"}, "hetsched_workloads": set[str]()}
"""Rooms that may import only these and nouns: clients start fast, plug-ins outlive the engine."""

SLOW = {"scipy"}
"""Takes longer to import than this package; few processes use what needs it."""
VENDORS = {
    "cupy", "cupyx", "cupy_backends", "pyopencl", "reikna", "pyvkfft", "pynvml", "pyfftw",
    "ducc0", "numba", "mkl",
}  # fmt: skip
USES_VENDORS = ("hetsched.devices.", "hetsched_workloads", "hetsched.functions.transforms")
LATE = (
    "hetsched.cli.",
    "hetsched_workloads.",
    "hetsched.explain.records",
    "hetsched.plots",
    "hetsched.store.matrix_file",
    "hetsched.device_process.main",
    "hetsched.hosts.",
)
"""Sources that may import anything in a function: what most processes never need."""

ON_REQUEST = {
    ("hetsched.client.client", "hetsched.hosts.client"),
    ("hetsched.client.job", "asyncio"),
    ("hetsched.explain.records", "hetsched.plots"),
    ("hetsched.functions.map", "hetsched.hosts.client"),
    ("hetsched.functions.joblib_backend", "joblib.parallel"),
}
"""(source, module): what few callers ask for: a cluster, `await job`, a notebook, joblib."""
PICKLES = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}


def layer(room: str) -> int:
    return next((level for level, rooms in enumerate(LAYERS, 1) if room in rooms), 0)


def room(module: str) -> str:
    """`engine` of `hetsched.engine.run`; other packages are a room each; "" is hetsched's root."""
    package, _, rest = module.partition(".")
    return rest.partition(".")[0] if package == "hetsched" else package


def complaint(source: str, target: str, late: bool) -> str | None:
    package = target.partition(".")[0]
    if (source, target.rpartition(".")[0]) in ON_REQUEST:
        return None
    if package in PICKLES:
        return "pickles"
    is_free = source == "hetsched" or source.startswith(LATE) or package in VENDORS | SLOW
    if late and not is_free:
        return "is late"
    if source.startswith("hetsched.") and package == "hetsched_workloads":
        return "knows a workload"
    if package in VENDORS and not source.startswith(USES_VENDORS):
        return "uses a vendor library outside devices/"
    return direction(room(source), room(target)) if package == "hetsched" else None


def direction(ours: str, theirs: str) -> str | None:
    if ours in ("", theirs) or theirs == "":
        return None
    if ours in NARROW and layer(theirs) and theirs not in NARROW[ours]:
        return "leaves its narrow rooms"
    upward = layer(theirs) >= layer(ours) and layer(theirs) > 0
    return "points up" if upward and ours not in NARROW else None


def imports(source: str, code: str, is_package: bool = False) -> Iterator[tuple[str, bool, int]]:
    """(target, whether it is late, line) of each import in `code`."""
    tree = ast.parse(code)
    for node, is_late in nodes(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = source.split(".")
            parents = parts[: len(parts) - node.level + is_package] if node.level else []
            base = ".".join([*parents, *filter(None, [node.module])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and last_name(node.func) == "import_module":
            names = [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)]
        yield from ((name, is_late, node.lineno) for name in names)


def nodes(tree: ast.AST) -> Iterator[tuple[Any, bool]]:
    """All nodes, and whether they are in a function."""
    left = [(tree, False)]
    while left:
        node, is_late = left.pop()
        yield node, is_late
        is_late = is_late or isinstance(node, ast.FunctionDef | ast.Lambda)
        left += [(child, is_late) for child in ast.iter_child_nodes(node)]


def last_name(function: ast.expr) -> str:
    return str(getattr(function, "attr", getattr(function, "id", "")))


def complaints(source: str, code: str, is_package: bool = False) -> list[str]:
    found = imports(source, code, is_package)
    judged = [(line, target, complaint(source, target, late)) for target, late, line in found]
    return [f"{source}:{line}: {target} {why}" for line, target, why in judged if why]


def test_every_import_of_both_packages_is_allowed() -> None:
    found = []
    for folder in (ROOT, ROOT / "workloads"):
        for path in sorted(folder.glob("hetsched*/**/*.py")):
            name = ".".join(path.relative_to(folder).with_suffix("").parts)
            package = path.name == "__init__.py"
            found += complaints(name.removesuffix(".__init__"), path.read_text(), package)
    assert found == []


@pytest.mark.parametrize(
    "package",
    ["", ".models", ".partition", ".plans"],
)
def test_no_name_of_a_package_is_hidden_by_a_module(package: str) -> None:
    module = importlib.import_module(f"hetsched{package}")
    importlib.import_module("hetsched.local")
    importlib.import_module("hetsched.engine.engine")
    assert not any(isinstance(getattr(module, name), ModuleType) for name in module.__all__)


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("__version__", {"numpy", "msgspec"}),
        ("map", {"scipy", "asyncio", "hetsched.engine.engine"}),
        ("Local", {"scipy"}),
        ("fft.fft2", {"hetsched.engine.engine"}),
        ("testing.check_workload", {"hetsched.fft"}),
    ],
)
def test_importing_takes_little(name: str, absent: set[str]) -> None:
    code = f"import sys, hetsched; hetsched.{name}; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert not absent & set(loaded.split())
