"""Results: pyperf's suites, one file for each benchmark and model of processor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pyperf

from benchmarks import machine
from benchmarks.contest import Found

FOLDER = Path(__file__).parent / "results"
Saved = Mapping[str, pyperf.Benchmark]
"""By the names of benchmarks: "CASE: WHAT"."""


def path_of(name: str) -> Path:
    facts = machine.describe()
    text = f"{facts['processor']} {facts['cores']} cores".lower()
    return FOLDER / re.sub(r"[^a-z0-9]+", "-", text).strip("-") / f"{name}.json"


def load(path: Path) -> dict[str, pyperf.Benchmark]:
    """Return what is saved, nothing if there is no file."""
    suite = pyperf.BenchmarkSuite.load(str(path)) if path.exists() else ()
    return {benchmark.get_name(): benchmark for benchmark in suite}


def save(path: Path, benchmarks: Iterable[pyperf.Benchmark]) -> None:
    """Write `benchmarks` with versions and date, and those with other names that are there."""
    found = load(path)
    facts = machine.describe()
    versions = {f"version_{k}": text for k, text in facts.pop("packages").items() if text}
    facts["date"] = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
    del facts["load_average"]  # of each run: load_avg_1min
    for benchmark in benchmarks:
        benchmark.update_metadata({**facts, **versions})
        found[benchmark.get_name()] = benchmark
    path.parent.mkdir(parents=True, exist_ok=True)
    pyperf.BenchmarkSuite(list(found.values())).dump(str(path), replace=True)


def of_case(saved: Saved, case: str) -> tuple[Found, dict[str, str]]:
    """Return the values of a case, and the facts of its last round."""
    found, facts = {}, {}
    for name, benchmark in saved.items():
        if name.startswith(f"{case}: "):
            found[name.removeprefix(f"{case}: ")] = benchmark.get_values()
            facts |= benchmark.get_runs()[-1].get_metadata()
    return found, facts


def cases(saved: Saved) -> list[str]:
    return list(dict.fromkeys(name.rpartition(": ")[0] for name in saved))


def text(module: ModuleType, saved: Saved) -> str:
    """Return the table of a benchmark, in Markdown."""
    rows = [module.row(case, *of_case(saved, case)) for case in cases(saved)]
    lines = [module.COLUMNS, ["---"] * len(module.COLUMNS), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
