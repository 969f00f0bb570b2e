"""Figures about the code: filler names, duplicate classes, files per folder, `Any`, lines.

    python tools/code_report.py [--names] [FOLDER]

Counts every binding of a name (parameters, assignments, loop and `with` targets, functions,
classes, attributes of `self`) in FOLDER, by default both packages. `--names` lists where each
filler name is bound.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("hetsched", "workloads/hetsched_workloads")

_WORDS = """
alike alone another anything asked away behind both each enough ever every everything found
given gone got heard held here it its kept known least left lie look looked made many mine more
most much none nothing off on one ones other others ours own right said same seen several shown
so some someone something such taken taught that theirs them then there these they thing things
this those together told took tried two wanted well went what whatever where whole whom whose
why worth
"""
FILLERS = frozenset(_WORDS.split())
"""Names that say nothing about the value: pronouns, quantifiers, participles without a noun."""


@dataclass(frozen=True)
class Binding:
    """A name and where it is bound."""

    name: str
    path: Path
    line: int


def bindings(path: Path) -> Iterator[Binding]:
    """Every binding of a name in the file `path`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = bound_name(node)
        if name is not None and name.strip("_") and name != "self":
            yield Binding(name.strip("_"), path, node.lineno)  # type: ignore[attr-defined]


def bound_name(node: ast.AST) -> str | None:
    """The name that `node` itself binds, if any."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return name
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            return name
        case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
            return name
    return None


def duplicate_classes(paths: list[Path]) -> dict[str, list[Path]]:
    """Class name -> the files that define it, where there are several."""
    homes: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(path)
    return {name: files for name, files in sorted(homes.items()) if len(files) > 1}


def any_count(folder: Path) -> int:
    """Uses of `Any` in annotations below `folder`, imports not counted."""
    return sum(
        isinstance(node, ast.Name) and node.id == "Any"
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )


def sources(folders: tuple[str, ...] = PACKAGES) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def filler_bindings(paths: list[Path]) -> tuple[list[Binding], int]:
    """The bindings of filler names, and the number of all bindings."""
    total = [binding for path in paths for binding in bindings(path)]
    return [binding for binding in total if binding.name in FILLERS], len(total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="by default both packages")
    parser.add_argument("--names", action="store_true", help="list where fillers are bound")
    arguments = parser.parse_args()
    paths = sources((arguments.folder,) if arguments.folder else PACKAGES)
    fillers, total = filler_bindings(paths)
    if arguments.names:
        for binding in fillers:
            print(f"{binding.path.relative_to(ROOT)}:{binding.line} {binding.name}")
    common = ", ".join(
        f"{name} {n}" for name, n in Counter(b.name for b in fillers).most_common(9)
    )
    folders = Counter(str(path.parent.relative_to(ROOT)) for path in paths)
    print(f"filler names: {len(fillers)} of {total} bound ({len(fillers) / total:.1%}): {common}")
    for name, files in duplicate_classes(paths).items():
        print(f"class {name}: {', '.join(str(path.relative_to(ROOT)) for path in files)}")
    print(f"most files in a folder: {folders.most_common(4)}")
    print(f"uses of Any in the CLI: {any_count(ROOT / 'hetsched/cli')}")
    print(f"lines: {sum(len(path.read_text().splitlines()) for path in paths)}")


if __name__ == "__main__":
    main()
