"""Every import of both packages points up the layers of docs/design.md; late ones are listed.

The tables below are the rules. The walk is over the syntax tree: nothing is imported, so that the
test also holds for files whose vendor library isn't installed. `importlib.import_module("name")`
counts as an import of that name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "hetsched": ROOT / "hetsched",
    "hetsched_workloads": ROOT / "workloads/hetsched_workloads",
}

LEVELS = (
    ("errors", "units", "text", "bounded_cache"),
    (
        "memory",
        "job",
        "queue_options",
        "iteration_options",
        "job_segments",
        "device_kinds",
        "device",
        "dtypes",
        "sparse",
        "workload",
        "iterations",
        "config",
        "paths",
        "explain",
        "models",
    ),
    ("partition",),
    ("plans", "planner", "dispatch"),
    ("simulate", "devices", "store", "transport"),
    ("device_process", "engine"),
    ("daemon", "cluster"),
    ("client", "local"),
    ("scipy_fft", "divisible"),
    ("cli",),
)
"""L0 to L9, each a list of files and folders of `hetsched`."""

SIDEWAYS = {
    ("units", "errors"),
    ("job", "errors"),
    ("queue_options", "job"),
    ("iteration_options", "job"),
    ("iteration_options", "queue_options"),
    ("job_segments", "job"),
    ("device", "device_kinds"),
    ("config", "device_kinds"),
    ("workload", "memory"),
    ("workload", "dtypes"),
    ("workload", "sparse"),
    ("iterations", "workload"),
    ("models", "device"),
    ("explain", "device"),
    ("explain", "iterations"),
    ("planner", "plans"),
    ("dispatch", "plans"),
    ("local", "client"),
}
"""Edges within a level between different files or folders: (importer, imported)."""

NARROW = {
    "client": (
        "errors",
        "units",
        "job",
        "queue_options",
        "iteration_options",
        "job_segments",
        "sparse",
        "device",
        "explain",
        "paths",
        "config",
        "transport",
    ),
    "transport": ("errors", "units", "job", "device", "explain", "paths", "config"),
    "hetsched_workloads": ("errors", "units", "memory", "workload"),
}
"""What these may import of `hetsched`, fewer than their level would allow."""

LATE = {
    "hetsched": ("*",),
    "hetsched.cli.*": ("*",),
    "hetsched.devices.*": ("cupy*", "pynvml"),
    "hetsched.explain.records": ("hetsched.explain.text",),
    "hetsched_workloads.*": (
        "hetsched_workloads.*",
        "numpy",
        "scipy*",
        "pyfftw*",
        "ducc0",
        "cupy*",
    ),
}
"""Importer -> what it may import inside a function: heavy and vendor libraries, variant files; the
text of explanations, which a client needs only when it prints one."""

VENDORS = {
    "cupy": (
        "hetsched.devices.cuda.*",
        "hetsched_workloads.*cuda*",
        "hetsched_workloads.*cupy*",
    ),
    "cupyx": ("hetsched_workloads.*cuda*", "hetsched_workloads.*cupy*"),
    "cupy_backends": ("hetsched.devices.cuda.*", "hetsched_workloads.*cuda*"),
    "pynvml": ("hetsched.devices.*",),
    "pyfftw": ("hetsched_workloads.*fftw*", "hetsched_workloads.fft.wisdom"),
    "ducc0": ("hetsched_workloads.*ducc*",),
    "numba": ("hetsched_workloads.*numba*",),
    "llvmlite": ("hetsched_workloads.*numba*",),
    "mkl": (),
    "mkl_fft": (),
    "mkl_random": (),
}
"""Vendor library -> the files that may import it. MKL is only ever loaded through ctypes."""

PICKLES = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}


@dataclass(frozen=True)
class Edge:
    """One import: `target` is a module, as dotted as can be known."""

    source: str
    target: str
    line: int
    late: bool

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.target}"


def modules(packages: dict[str, Path]) -> dict[str, Path]:
    """Dotted name -> file of every module of `packages`."""
    found = {}
    for package, folder in packages.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def edges(packages: dict[str, Path]) -> Iterator[Edge]:
    known = modules(packages)
    for source, path in known.items():
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        package = source if path.name == "__init__.py" else source.rpartition(".")[0]
        late = {id(node) for function in functions(tree) for node in ast.walk(function)}
        for node in ast.walk(tree):
            for target in targets(node, package, known):
                yield Edge(source, target, node.lineno, id(node) in late)


def functions(tree: ast.AST) -> Iterator[ast.AST]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    return (node for node in ast.walk(tree) if isinstance(node, kinds))


def targets(node: ast.AST, package: str, known: dict[str, Path]) -> list[str]:
    """The modules that `node` imports, if it is an import."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = absolute(node, package)
        names = [f"{base}.{alias.name}" for alias in node.names]
        return [name if name in known else base for name in names]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
        ("import_module", "__import__")
    ):
        return [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)]
    return []


def absolute(node: ast.ImportFrom, package: str) -> str:
    if node.level == 0:
        return node.module or ""
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])


def part(module: str) -> str:
    """The file or folder of `hetsched` that `module` belongs to; "" for the package itself."""
    return module.partition(".")[2].partition(".")[0]


def level(name: str) -> int | None:
    return next((index for index, names in enumerate(LEVELS) if name in names), None)


def complaint(edge: Edge) -> str | None:
    """Why `edge` isn't allowed, or None."""
    top = edge.target.partition(".")[0]
    if top in PICKLES:
        return "pickles"
    if top in VENDORS and not any(fnmatch(edge.source, file) for file in VENDORS[top]):
        return "uses a vendor library outside its files"
    if edge.late and not allowed_late(edge):
        return "is late"
    if top == "hetsched_workloads" and edge.source.partition(".")[0] == "hetsched":
        return "makes the scheduler know a workload"
    return layer_complaint(edge) if top == "hetsched" else None


def allowed_late(edge: Edge) -> bool:
    return any(
        fnmatch(edge.source, source) and any(fnmatch(edge.target, target) for target in allowed)
        for source, allowed in LATE.items()
    )


def layer_complaint(edge: Edge) -> str | None:
    package = edge.source.partition(".")[0]
    source = part(edge.source) if package == "hetsched" else package
    target = part(edge.target)
    if source in (target, "") or target == "":
        return None
    if source in NARROW and target not in NARROW[source]:
        return f"leaves what {source} may use"
    if package != "hetsched":
        return None
    ours, theirs = level(source), level(target)
    if ours is None or theirs is None:
        return "has no level: add it to docs/design.md and LEVELS"
    if theirs > ours:
        return "points down the layers"
    if theirs == ours and (source, target) not in SIDEWAYS:
        return "points sideways within a level"
    return None


def complaints(packages: dict[str, Path]) -> list[str]:
    found = ((edge, complaint(edge)) for edge in edges(packages))
    return [f"{edge}: {why}" for edge, why in found if why]


def test_every_import_points_up_and_late_ones_are_listed() -> None:
    assert complaints(PACKAGES) == []


def test_the_walk_sees_both_packages() -> None:
    sources = {edge.source for edge in edges(PACKAGES)}

    assert {"hetsched.config", "hetsched.transport.loop"} <= sources


def test_nothing_is_allowed_to_unpickle_arrays() -> None:
    files = modules(PACKAGES).values()

    assert [str(path) for path in files if "allow_pickle=True" in path.read_text()] == []


@pytest.mark.parametrize(
    ("module", "code", "why"),
    [
        ("hetsched.models.curves.curve", "from hetsched.partition import geometric", "down"),
        ("hetsched.models.curves.curve", "from ...cli import main", "down"),
        (
            "hetsched.plans.device_plan",
            "from typing import Any\nimport hetsched.engine.engine",
            "down",
        ),
        ("hetsched.store.models.model_store", "from hetsched import transport", "sideways"),
        ("hetsched.client.client", "from hetsched.engine import engine", "leaves"),
        ("hetsched.newpart", "from hetsched import errors", "no level"),
        ("hetsched.engine.engine", "def f():\n    import numpy", "late"),
        ("hetsched.engine.engine", "f = lambda: importlib.import_module('numpy')", "late"),
        ("hetsched.devices.cuda.device", "def f():\n    from hetsched import errors", "late"),
        ("hetsched.engine.engine", "import cupy", "vendor"),
        ("hetsched_workloads.fft", "import pyfftw", "vendor"),
        ("hetsched_workloads.fft_mkl", "def f():\n    import mkl", "vendor"),
        ("hetsched.engine.engine", "from hetsched_workloads import fft", "know a workload"),
        ("hetsched_workloads.fft", "from hetsched.engine import engine", "leaves"),
        ("hetsched.store.models.model_store", "def f():\n    import pickle", "pickles"),
    ],
)
def test_each_kind_of_violation_is_seen(tmp_path: Path, module: str, code: str, why: str) -> None:
    packages = synthetic(tmp_path, module, code)

    found = complaints(packages)

    assert len(found) == 1
    assert why in found[0]


@pytest.mark.parametrize(
    ("module", "code"),
    [
        (
            "hetsched.cli.commands.run",
            "def f():\n    import numpy\n    from hetsched import engine",
        ),
        ("hetsched.devices.cuda.device", "def f():\n    import cupy"),
        ("hetsched.engine.engine", "from hetsched.transport import loop\nimport numpy"),
        ("hetsched.models.curves.curve", "from .points import Point"),
        ("hetsched_workloads.fft_fftw", "import pyfftw\nfrom hetsched.workload import Variant"),
    ],
)
def test_allowed_imports_pass(tmp_path: Path, module: str, code: str) -> None:
    assert complaints(synthetic(tmp_path, module, code)) == []


def synthetic(folder: Path, module: str, code: str) -> dict[str, Path]:
    """A tree of packages in which only `module` has an import."""
    packages = {name: folder / name for name in PACKAGES}
    parts = ["errors", "partition", "engine", "transport", "cli", "engine/engine"]
    names = [*(f"hetsched/{name}" for name in parts), "hetsched_workloads/fft"]
    for name in names:
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    path = folder / f"{module.replace('.', '/')}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code, encoding="utf-8")
    return packages
