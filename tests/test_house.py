"""House rules that no linter checks: sizes, names, docstrings, the typing marks."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import code_report  # noqa: E402 - tools/ is not a package

PACKAGES = ("hetsched", "workloads")
SOURCES = sorted(
    path
    for folder in (
        "hetsched",
        "workloads",
        "tests",
        "benchmarks",
        "robustness",
        "examples",
        "tools",
        "docs",
    )
    for path in (ROOT / folder).rglob("*.py")
)
SHIPPED = [
    path for path in SOURCES if path.relative_to(ROOT).parts[0] in ("hetsched", "workloads")
]
TEXTS = [
    *SOURCES,
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("benchmarks/*.md")),
    *sorted(ROOT.glob("configs/*.toml")),
    *sorted(ROOT.glob("systemd/*")),
    *(ROOT / name for name in ("Makefile", "pyproject.toml", ".ci/run", ".gitignore")),
]

MAX_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_FOLDER_FILES = 15
MAX_FILLER_FRACTION = 0.01

MESSAGES = {
    "hetsched/daemon/commands.py",
    "hetsched/dispatch/commands.py",
    "hetsched/dispatch/events.py",
    "hetsched/engine/job/commands.py",
    "hetsched/engine/job/events.py",
    "hetsched/transport/device_messages.py",
    "hetsched/transport/messages.py",
}
"""Files of messages, events and commands: different protocols may use the same words."""

# Spelled in pieces, or this file would be caught by itself.
UNFINISHED = (
    "TO" + "DO",
    "FIX" + "ME",
    "X" + "XX",
    "HA" + "CK",
    "Not" + "ImplementedError",
    "<" * 7 + " ",  # a conflict of a merge
    ">" * 7 + " ",
)


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{path}:{node.lineno} {node.name}", (node.end_lineno or 0) - node.lineno + 1


def test_no_file_is_longer_than_the_stop() -> None:
    lines = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}

    assert {path: count for path, count in lines.items() if count > MAX_LINES} == {}


def test_no_function_is_longer_than_the_stop() -> None:
    lines = dict(item for path in SOURCES for item in functions(path))

    assert {name: count for name, count in lines.items() if count > MAX_FUNCTION_LINES} == {}


def test_no_folder_holds_more_files_than_a_reader_surveys() -> None:
    files = Counter(path.parent.relative_to(ROOT) for path in SHIPPED)
    commands = Path("hetsched/cli/commands")

    assert {
        str(folder): count
        for folder, count in files.items()
        if count > MAX_FOLDER_FILES and folder != commands
    } == {}


def test_class_names_are_unique_but_for_messages() -> None:
    ordinary = [path for path in SHIPPED if str(path.relative_to(ROOT)) not in MESSAGES]

    assert code_report.duplicate_classes(ordinary) == {}


def test_few_names_are_fillers() -> None:
    fillers, total = code_report.filler_bindings(SHIPPED)

    assert len(fillers) <= MAX_FILLER_FRACTION * total, [str(one.name) for one in fillers]


def test_every_module_says_what_it_owns() -> None:
    speaking = [path for path in SOURCES if "tests" not in path.relative_to(ROOT).parts]
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in speaking}

    silent = [path for path, tree in trees.items() if tree.body and not ast.get_docstring(tree)]

    assert silent == []


def test_no_public_function_of_the_packages_lacks_a_type() -> None:
    missing = [
        f"{path}:{node.lineno} {node.name}"
        for path in SHIPPED
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.returns is None
    ]

    assert missing == []


@pytest.mark.parametrize("word", UNFINISHED)
def test_nothing_is_marked_as_unfinished(word: str) -> None:
    assert [str(path) for path in TEXTS if path.exists() and word in path.read_text()] == []


@pytest.mark.parametrize("package", ["hetsched", "workloads/hetsched_workloads"])
def test_both_packages_say_that_they_are_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path in SOURCES if path.name.startswith("test_")]

    assert sorted(names) == sorted(set(names))


def test_the_version_stands_in_one_way_everywhere() -> None:
    import hetsched

    project = (ROOT / "pyproject.toml").read_text()
    changes = (ROOT / "CHANGELOG.md").read_text()

    assert f'version = "{hetsched.__version__}"' in project
    assert f"## [{hetsched.__version__}]" in changes
