"""Results of a benchmark: a JSON file, a table in README.md, and whether its limits hold."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import machine

FOLDER = Path(__file__).parent
README = FOLDER / "README.md"


@dataclass(frozen=True)
class Bar:
    """A figure that must be at least (or at most) `limit`."""

    what: str
    value: float
    limit: float
    at_least: bool = True

    @property
    def holds(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def text(self) -> str:
        side = "at least" if self.at_least else "at most"
        verdict = "holds" if self.holds else "**missed**"
        return f"{self.what}: {self.value:.3g}, {side} {self.limit:g}: {verdict}"


@dataclass
class Result:
    """`columns` and `rows`: the table as text. `data`: all measurements, for the JSON."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    data: list[dict[str, Any]] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)

    def text(self) -> str:
        bars = "\n".join(f"* {bar.text()}" for bar in self.bars)
        return f"{table(self.columns, self.rows)}\n\n{bars}\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def save(result: Result, folder: Path = FOLDER / "results", page: Path = README) -> Path:
    """Write ``NAME.json`` in `folder`, and the table between NAME's markers in `page`."""
    facts = machine.describe()
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    path = folder / f"{result.name}.json"
    folder.mkdir(exist_ok=True)
    content = {"name": result.name, "date": when, "machine": facts, "data": result.data}
    content["bars"] = [{**asdict(bar), "holds": bar.holds} for bar in result.bars]
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    where = f"{facts['processor']}, {facts['cores']} cores, {when}{_busy(facts)}"
    section = f"## {result.title}\n\n{where}.\n\n{result.text()}"
    page.write_text(replaced(page.read_text(encoding="utf-8"), result.name, section))
    return path


def _busy(facts: Mapping[str, Any]) -> str:
    """Return what readers of times must know: how many others wanted the cores at the end."""
    load = float(facts["load_average"])
    return f", load average {load:.0f}" if load > 2 * facts["cores"] else ""


def earlier_data(name: str, folder: Path = FOLDER / "results") -> list[dict[str, Any]]:
    """Return the saved data of `name`, if they are of this processor and by case."""
    try:
        content = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    facts, data = content.get("machine", {}), content.get("data", [])
    same = (facts.get("processor"), facts.get("cores")) == (
        machine.processor(),
        machine.describe()["cores"],
    )
    return [entry for entry in data if "case" in entry] if same else []


def version_of_source() -> str:
    """Return the commit of this checkout, marked if its files differ; "" outside of one."""
    git = ["git", "-C", str(FOLDER), "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def replaced(page: str, name: str, section: str) -> str:
    """Return `page` with `section` between the markers of `name`; new ones go at the end."""
    begin, end = f"<!-- {name} begin -->", f"<!-- {name} end -->"
    block = f"{begin}\n{section.rstrip()}\n{end}"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if pattern.search(page):
        return pattern.sub(lambda _: block, page)
    return f"{page.rstrip()}\n\n{block}\n"
