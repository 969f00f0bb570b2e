"""Counts the source files that a warm `hetsched submit fft` runs through, in all processes.

Counted from the start of the command to its result; learning from the run, which follows, is
deferred. A file counts if any code in it runs: in the command's own process that includes the
bodies of imported modules; the daemon and the device processes have run such jobs before, so only
functions count there. Files below `hetsched/` and `workloads/` count, once for all processes.

    python -m benchmarks.files_touched [PYTHON ...]     with other environments, and a list
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import Bar, Result

RECORDER = Path(__file__).parent / "file_recorder"
SUBMIT = ("submit", "fft", "--batch", "64x512x512")
MAX_FILES = 70
WARM_UP_JOBS = 30
"""Jobs after which all variants have been tried, and good plans are repeated."""
SETTLE_SECONDS = 0.5
"""Seconds until all processes have noticed that the window opens or closes, and are idle."""
TIMEOUT = 120.0


@dataclass(frozen=True)
class Touched:
    """Files that ran in one process, relative to their root; `functions`: not only imported."""

    name: str
    files: frozenset[str]
    functions: frozenset[str]


def measure(quick: bool) -> Result:
    del quick  # one short job either way
    result = Result(
        "files_touched",
        "Files that a warm submit runs through",
        ("process", "files", "of which with functions"),
    )
    processes = record(Path(sys.executable))
    for process in processes:
        result.rows.append((process.name, str(len(process.files)), str(len(process.functions))))
    files, functions = union(processes)
    result.rows.append(("all, each file once", str(len(files)), str(len(functions))))
    result.data.append({"files": sorted(files), "functions": sorted(functions)})
    result.bars.append(Bar("files with functions", len(functions), MAX_FILES, at_least=False))
    return result


def union(processes: Sequence[Touched]) -> tuple[set[str], set[str]]:
    """Return the files of all processes, and those in which a function ran."""
    files = {file for process in processes for file in process.files}
    functions = {file for process in processes for file in process.functions}
    return files, functions


def record(python: Path) -> list[Touched]:
    """Run a daemon and warm it up; return what ran during one more job."""
    with tempfile.TemporaryDirectory(prefix="hs-") as temporary:
        folder = Path(temporary)
        environment = _environment(folder)
        command = [str(python.parent / "hetsched")]
        daemon = subprocess.Popen(
            [*command, "serve", "--config", "cpu-only"], env=environment, stderr=subprocess.PIPE
        )
        try:
            _wait_until_ready(command, environment)
            for _ in range(WARM_UP_JOBS):
                _run([*command, *SUBMIT], environment)
            time.sleep(SETTLE_SECONDS)
            (folder / "begin").touch()
            time.sleep(SETTLE_SECONDS)
            _run([*command, *SUBMIT], environment)
            (folder / "end").touch()
            time.sleep(SETTLE_SECONDS)
            records = list(folder.glob("*.json"))
            return [_touched(path, _roots(python)) for path in sorted(records)]
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.communicate(timeout=TIMEOUT)


def _environment(folder: Path) -> dict[str, str]:
    return os.environ | {
        "HETSCHED_RUNTIME_DIR": str(folder / "run"),
        "HETSCHED_STATE_DIR": str(folder / "state"),
        "HETSCHED_FILE_RECORDER": str(folder),
        "PYTHONPATH": str(RECORDER),
    }


def _run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=TIMEOUT)


def _wait_until_ready(command: Sequence[str], environment: Mapping[str, str]) -> None:
    deadline = time.monotonic() + TIMEOUT
    ping = [*command, "ping"]
    while subprocess.run(ping, env=environment, capture_output=True, check=False).returncode:
        if time.monotonic() > deadline:
            raise SystemExit("the daemon doesn't answer")
        time.sleep(0.1)


def _roots(python: Path) -> tuple[Path, ...]:
    """Return the folders in which the packages of an environment lie."""
    code = (
        "import hetsched, hetsched_workloads\n"
        "print(hetsched.__path__[0], hetsched_workloads.__path__[0], sep='\\n')"
    )
    command = [python, "-I", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return tuple(Path(line).parent for line in done.stdout.splitlines())


def _touched(path: Path, roots: Sequence[Path]) -> Touched:
    content = json.loads(path.read_text(encoding="utf-8"))
    return Touched(
        " ".join(Path(word).name for word in content["command"][:2]),
        frozenset(_relative(content["files"], roots)),
        frozenset(_relative(content["functions"], roots)),
    )


def _relative(files: Sequence[str], roots: Sequence[Path]) -> list[str]:
    packages = ("hetsched", "hetsched_workloads")
    return [
        str(Path(file).relative_to(root))
        for file in files
        for root in roots
        if Path(file).is_relative_to(root) and Path(file).relative_to(root).parts[0] in packages
    ]


def main() -> None:
    for python in [Path(word).absolute() for word in sys.argv[1:]] or [Path(sys.executable)]:
        processes = record(python)
        files, functions = union(processes)
        print(f"{python}: {len(files)} files, {len(functions)} with functions")
        for process in processes:
            print(f"  {process.name}: {len(process.files)}, {len(process.functions)}")
        for file in sorted(files):
            users = ", ".join(process.name for process in processes if file in process.files)
            print(f"    {file}{'' if file in functions else ' (imported)'}: {users}")


if __name__ == "__main__":
    main()
