"""A subset of `warm_job` in five minutes, compared with the last saved result of this processor.

    python -m benchmarks.quick [--minutes 5] [--unsaved]

Prints, for each case, the saved time over the present one, and the present ratio to the fastest
library over the saved one. Exits with 1 if a case is slower by both.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import machine, results
from benchmarks.stats import milliseconds
from benchmarks.warm_cases import QUICK, selected
from benchmarks.warm_job import measure_cases

INSTANCES = 3
MIN_SPEED = 0.9
"""Least ratio of the saved time to today's that isn't reported as slower: instances differ by
several percent."""
FOLDER = results.FOLDER / "results" / "quick"


def saved_path(folder: Path = FOLDER) -> Path:
    """Return the file of this processor's last result."""
    name = f"{machine.processor()} {machine.describe()['cores']} cores"
    return folder / f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}.json"


def load(path: Path) -> dict[str, dict[str, Any]]:
    """Return case -> its saved entry; nothing if there is none for this processor."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        return {}
    return {entry["case"]: entry for entry in content["data"]}


def compared(entry: dict[str, Any], saved: dict[str, Any] | None) -> tuple[str, bool]:
    """Return a line about a case, and whether it is slower than saved, also against the library.

    A machine that is busy slows down both, so the time alone isn't enough.
    """
    own = entry["ratio"][entry["fastest"]]
    text = f"{entry['case']}: {milliseconds(entry['ours'])} ms, {own:.2f} of {entry['fastest']}"
    if saved is None:
        return f"{text}; nothing saved", False
    speed = saved["ours"] / entry["ours"]
    relative = own / saved["ratio"][saved["fastest"]]
    is_slower = max(speed, relative) < MIN_SPEED
    text += (
        f"; {speed:.2f} times as fast as on {saved['when']}, {relative:.2f} against the library"
    )
    return text + (" SLOWER" if is_slower else ""), is_slower


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quick")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--unsaved", action="store_true", help="keep the saved result")
    given = parser.parse_args()
    cases = [case for case in selected([n.split()[0] for n in QUICK]) if case.name in QUICK]
    until = time.monotonic() + 60 * given.minutes * (1 - 1 / len(cases))
    result = measure_cases("warm_job", cases, save=False, instances=INSTANCES, until=until)
    path = saved_path()
    saved = load(path)
    lines = [compared(entry, saved.get(entry["case"])) for entry in result.data]
    print("\n".join(line for line, _ in lines), flush=True)
    if not given.unsaved and result.data:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = saved | {entry["case"]: entry for entry in result.data}
        content = {"machine": machine.describe(), "data": list(kept.values())}
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return int(any(is_slower for _, is_slower in lines))


if __name__ == "__main__":
    sys.exit(main())
