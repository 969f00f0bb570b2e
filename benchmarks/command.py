"""The command line that all sets of measurements share: run all, or those named; report; save."""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.results import Result

Measurement = Callable[[], Result]


def parser(module: str, known: Iterable[str]) -> argparse.ArgumentParser:
    """Return a parser for ``python -m MODULE [NAME ...]``."""
    made = argparse.ArgumentParser(prog=f"python -m {module}")
    made.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    return made


def chosen(
    parser: argparse.ArgumentParser, names: list[str], known: Mapping[str, Any]
) -> list[str]:
    """Return the names to run, all if none are given; exit with 2 if one is unknown."""
    if unknown := set(names) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from: {', '.join(known)}")
    return names or list(known)


def run_all(
    measurements: Mapping[str, Measurement],
    save: Callable[[Result], Path] | None,
    *,
    must_hold: bool = True,
) -> int:
    """Run measurements in turn, print and save their results; return the exit code.

    Parameters
    ----------
    save : callable or None
        None to save nothing.
    must_hold : bool
        Whether a bar that doesn't hold is a failure, as an exception is: of its own measurement
        only.
    """
    failed = [
        name
        for name, measure in measurements.items()
        if not _passes(name, measure, save, must_hold)
    ]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def _passes(
    name: str, measure: Measurement, save: Callable[[Result], Path] | None, must_hold: bool
) -> bool:
    print(f"{name}:", flush=True)
    begin = time.monotonic()
    try:
        result = measure()
    except Exception:
        traceback.print_exc()
        return False
    print(f"\n{result.text()}\n({time.monotonic() - begin:.0f} s)", flush=True)
    if save is not None:
        print(f"saved {save(result)}", flush=True)
    return not must_hold or all(bar.holds for bar in result.bars)
