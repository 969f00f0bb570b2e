"""Applies mutations to a copy of the package, one by one, and runs tests that must then fail.

python tests/mutations/runner.py LIST     such as `partition`, for mutations/partition.py

Each mutation runs in a process forked from one that has imported pytest, but not hetsched, and
tests by properties are left out: a few tenths of a second each. Every core tests its share of the
mutations, on a copy of its own. Mutations that survive, or no longer apply, are reported, one per
line.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PASSED, FAILED = 0, 1
"""What pytest exits with; any other code means that tests could not be run."""
WRONG_PACKAGE = 90
PATIENCE = 120.0
"""Seconds until a mutation is taken for one that never ends."""


@dataclass(frozen=True)
class Mutation:
    """In `file` of the package, `original`, which is there once, becomes `replaced`.

    `tests`: what pytest is to run, relative to the top; some of it must fail, and with `every` all
    of it, as with tests that differ in their seeds only.
    """

    file: str
    original: str
    replaced: str
    tests: tuple[str, ...]
    every: bool = False

    def __str__(self) -> str:
        return f"{self.file}: {self.original!r} -> {self.replaced!r}"


def complaints(mutations: Sequence[Mutation], package: Path = ROOT / "hetsched") -> list[str]:
    """What is wrong with `mutations`: one line for each that isn't found out by its tests."""
    with tempfile.TemporaryDirectory(prefix="hs-mutations-") as folder:
        cores = min(len(os.sched_getaffinity(0)), len(mutations))
        copies = [Path(folder) / str(core) / package.name for core in range(cores)]
        for copy in copies:
            shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        tests = sorted({test for mutation in mutations for test in mutation.tests})
        if (code := _run(copies[0], tests)) != PASSED:
            return [f"the tests exit with {code} without any mutation: {' '.join(tests)}"]
        reasons = [""] * len(mutations)
        shares = [(mutations[core::cores], copy) for core, copy in enumerate(copies)]
        with multiprocessing.get_context("fork").Pool(cores) as pool:
            for core, share in enumerate(pool.starmap(_complaints, shares)):
                reasons[core::cores] = share
        reported = zip(mutations, reasons, strict=True)
        return [f"{mutation}: {reason}" for mutation, reason in reported if reason]


def _complaints(mutations: Sequence[Mutation], copy: Path) -> list[str]:
    return [_complaint(mutation, copy) for mutation in mutations]


def _complaint(mutation: Mutation, copy: Path) -> str:
    path = copy / mutation.file
    text = path.read_text(encoding="utf-8")
    if (times := text.count(mutation.original)) != 1:
        return f"the original is there {times} times, not once; bring the list up to date"
    path.write_text(text.replace(mutation.original, mutation.replaced), encoding="utf-8")
    try:
        code = _run(copy, mutation.tests, mutation.every)
    finally:
        path.write_text(text, encoding="utf-8")
    if code == PASSED:
        return "survived, some test passes" if mutation.every else "survived, no test fails"
    return "" if code == FAILED else f"the tests could not be run, exit code {code}"


def _run(copy: Path, tests: Sequence[str], every: bool = False) -> int:
    """pytest's exit code for `tests` with the package in `copy`; negative: killed, as too slow.

    `every`: PASSED if one of them does.
    """
    child = os.fork()
    if child == 0:
        code = WRONG_PACKAGE
        try:
            code = _in_child(copy, tests, every)
        finally:
            os._exit(code)
    end = time.monotonic() + PATIENCE
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -signal.SIGKILL
        time.sleep(0.01)


def _in_child(copy: Path, tests: Sequence[str], every: bool) -> int:
    import pytest

    sys.path.insert(0, str(copy.parent))
    package = importlib.import_module(copy.name)
    if Path(str(package.__file__)).parent != copy:
        return WRONG_PACKAGE
    # hypothesis is imported already, without rewritten assertions, which it doesn't need.
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider"]
    arguments = [
        *([] if every else ["-x"]),
        "-q",
        "-m",
        "not hypothesis",
        *quiet,
        "--rootdir",
        str(ROOT),
        *tests,
    ]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        counter = _Counter()
        code = int(pytest.main(arguments, plugins=[counter]))
    return PASSED if every and code == FAILED and counter.passed else code


class _Counter:
    """A plugin of pytest."""

    passed = 0

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.passed += report.when == "call" and report.passed


def main() -> int:
    # Imported here, once, so that the children needn't; hetsched must not be among them.
    for module in ("pytest", "hypothesis", "numpy", "scipy.optimize"):
        importlib.import_module(module)
    sys.dont_write_bytecode = True
    sys.path[0] = str(ROOT / "tests")
    sys.path.insert(1, str(ROOT))
    mutations: list[Any] = importlib.import_module(f"mutations.{sys.argv[1]}").MUTATIONS
    os.chdir(ROOT)
    found = complaints(mutations)
    print("\n".join(found) or f"all {len(mutations)} mutations are found out")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
