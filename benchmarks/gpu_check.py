"""Checks and measures hetsched on a GPU host, in at most nine minutes, from this repository alone.

python3 -m benchmarks.gpu_check --out FOLDER [--wheels FOLDER] [--dry-run] [--only NAME ...]

Each section runs in a separate process with a time limit, and writes FOLDER/NAME.json as it goes,
so that a fault or a hang affects that section only. Imports only the standard library; packages
that the host lacks come from the folder of wheels. `--dry-run` needs no GPU: a simulated runtime,
and the emulated GPU for whole jobs. See docs/gpu.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BUDGET = 525.0
"""Seconds for all sections: nine minutes less the time to start and finish."""
SECTIONS = {
    "facts": 45.0,
    "conformance": 60.0,
    "jobs": 150.0,
    "solvers": 180.0,
    "streamed": 60.0,
    "pipeline": 75.0,
    "faults": 40.0,
}
"""Name -> time limit in seconds; the most important first."""
LEAST = 5.0
"""Seconds that must remain for a section to be started."""


def main() -> int:
    given = arguments()
    out = given.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + BUDGET
    with tempfile.TemporaryDirectory(prefix="hetsched-gpu-check-") as scratch:
        environment = prepare(Path(scratch), given.wheels)
        summary = []
        for name in given.only or SECTIONS:
            summary.append(run(name, out, given.dry_run, environment, deadline))
            write(out / "summary.json", {"dry_run": given.dry_run, "sections": summary})
            print("{name:12} {seconds:6.1f} s  {state}".format_map(summary[-1]), flush=True)
    return 0 if all(section["state"] == "done" for section in summary) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.gpu_check")
    parser.add_argument("--out", type=Path, required=True, help="folder for the JSON files")
    parser.add_argument("--wheels", type=Path, help="folder of wheels that this Python lacks")
    parser.add_argument("--dry-run", action="store_true", help="no GPU: a fake one, small sizes")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, metavar="NAME")
    return parser.parse_args()


def prepare(scratch: Path, wheels: Path | None) -> dict[str, str]:
    """Install the wheels in `scratch`, where state and caches go too."""
    paths = [str(scratch / "packages"), str(ROOT), str(ROOT / "workloads")]
    if wheels is not None:
        files = sorted(str(wheel) for wheel in wheels.glob("*.whl"))
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
        subprocess.run([*command, "--target", paths[0], *files], check=True)
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(paths), PYTHONUNBUFFERED="1")
    for name in ("STATE", "RUNTIME"):
        environment[f"HETSCHED_{name}_DIR"] = str(scratch / name.lower())
    environment["XDG_CACHE_HOME"] = str(scratch / "cache")
    return environment


def run(
    name: str, out: Path, dry: bool, environment: dict[str, str], deadline: float
) -> dict[str, Any]:
    """Run one section and return its outcome."""
    limit = min(SECTIONS[name], deadline - time.monotonic())
    if limit < LEAST:
        return {"name": name, "state": "no time left", "seconds": 0.0}
    command = [sys.executable, "-m", "benchmarks.gpu", name, str(out / f"{name}.json")]
    started = time.monotonic()
    process = subprocess.Popen(
        [*command, *(["--dry-run"] if dry else [])],
        cwd=ROOT,
        env=environment,
        start_new_session=True,
    )
    try:
        code: int | None = process.wait(limit)
    except subprocess.TimeoutExpired:
        code = None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # so that nothing of it outlives it
    process.wait()
    state = "took too long" if code is None else "done" if code == 0 else f"failed ({code})"
    return {"name": name, "state": state, "seconds": round(time.monotonic() - started, 2)}


def write(path: Path, content: Any) -> None:
    """Write atomically, so that a partial file is never visible."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    part.rename(path)


if __name__ == "__main__":
    sys.exit(main())
