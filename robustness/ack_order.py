"""A durable job is acknowledged after its fsync, as the kernel saw it: the daemon under strace.

The client submits one job at a time: between the write of the job to the journal and the reply
that acknowledges it, a sync of the journal must have begun and succeeded. The job is found by its
id: other records may be written at any time.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import Bar, Result
from robustness.daemon import CORES, daemon
from robustness.scale import Scale

WRITES = ("write", "writev", "pwrite64", "pwritev")
SYNCS = ("fsync", "fdatasync")
SENDS = ("sendto", "sendmsg", "write", "writev")
TRACED = sorted({*WRITES, *SYNCS, *SENDS})

MAX_DATA = 4096
"""Bytes of a call that strace shows: a page of the journal."""

_LINE = re.compile(r"^(?:\[pid +)?(\d+)\]? +(.*)$")
_RESUMED = re.compile(r"^<\.\.\. (\w+) resumed>(.*)$")
_CALL = re.compile(r"^(\w+)\((\d+)<([^>]*)>(.*)$", re.DOTALL)
_RESULT = re.compile(r"\)\s+= (-?\d+)")


@dataclass(frozen=True)
class SystemCall:
    """One call on a descriptor, from its `begin` to its `end` (positions in the trace)."""

    name: str
    path: str
    arguments: str
    result: int
    begin: int
    end: int


@dataclass
class AckOrder:
    """`acknowledged`: replies that acknowledge a job. `early`: those sent before the sync."""

    acknowledged: int = 0
    early: int = 0


def measure(scale: Scale) -> Result:
    jobs = scale.of(5, 100, 1000)
    result = Result(
        "ack_order", "Acknowledgements and fsyncs", ("durable jobs", "acknowledged", "too early")
    )
    if not is_available():
        result.rows.append((str(jobs), "not measured: strace is missing or mustn't trace", ""))
        result.bars.append(Bar("jobs acknowledged before their fsync", 0, 0, at_least=False))
        return result
    order = _traced_jobs(jobs)
    result.rows.append((str(jobs), str(order.acknowledged), str(order.early)))
    result.data.append({"jobs": jobs, "acknowledged": order.acknowledged, "early": order.early})
    result.bars += [
        Bar("acknowledgements seen, of those sent", order.acknowledged / jobs, 1.0),
        Bar("jobs acknowledged before their fsync", order.early, 0, at_least=False),
    ]
    return result


def _traced_jobs(jobs: int) -> AckOrder:
    with daemon(CORES, start=False) as served:
        trace = served.folder / "trace"
        # -D: the daemon keeps its place as our child, and strace is a process beside it.
        served.prefix = traced(["-D"], trace)
        served.start()
        with served.client() as client:
            for number in range(1, jobs + 1):
                client.submit("fft", batch="1x64x64", id=job_id(number)).result()
        served.stop()
        return _order(trace)


def _order(trace: Path) -> AckOrder:
    with trace.open(encoding="utf-8", errors="replace") as lines:
        return ack_order(lines, _is_durable_ack)


def _is_durable_ack(call: SystemCall) -> bool:
    return "accepted" in call.arguments and "durable" in call.arguments


def is_available() -> bool:
    """Whether strace is installed and may trace."""
    strace = shutil.which("strace")
    if strace is None:
        return False
    command = [strace, "-qq", "-e", "trace=none", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def traced(command: Sequence[str], output: Path) -> list[str]:
    """Return the command that runs `command` under strace, which writes to `output`."""
    options = ["-f", "-qq", "-y", "-s", str(MAX_DATA), "-e", f"trace={','.join(TRACED)}"]
    return ["strace", *options, "-o", str(output), *command]


def calls(lines: Iterable[str]) -> Iterator[SystemCall]:
    """Parse strace's output; yield the calls in the order in which they ended."""
    unfinished: dict[str, tuple[int, str]] = {}
    for position, line in enumerate(lines):
        match = _LINE.match(line.rstrip("\n"))
        if match is None:
            continue
        thread, text = match.groups()
        begin = position
        if text.endswith("<unfinished ...>"):
            unfinished[thread] = position, text.removesuffix("<unfinished ...>")
            continue
        resumed = _RESUMED.match(text)
        if resumed is not None:
            if thread not in unfinished:
                continue
            begin, start = unfinished.pop(thread)
            text = start + resumed[2]
        call, result = _CALL.match(text), _RESULT.search(text)
        if call is not None and result is not None:
            name, _, path, arguments = call.groups()
            yield SystemCall(name, path, arguments, int(result[1]), begin, position)


def job_id(number: int) -> str:
    """Return the id that the client gives its job `number`, from 1 on."""
    return f"traced-{number:07}"


def ack_order(
    lines: Iterable[str], is_ack: Callable[[SystemCall], bool], journal: str = "journal.db-wal"
) -> AckOrder:
    """Check each reply for which `is_ack` holds. The client submits one job at a time."""
    order = AckOrder()
    written: int | None = None
    synced: int | None = None
    for call in calls(lines):
        if call.path.endswith(journal):
            if call.name in WRITES and written is None:
                written = call.end if job_id(order.acknowledged + 1) in call.arguments else None
            elif call.name in SYNCS and call.result == 0 and written is not None:
                synced = call.end if synced is None and written < call.begin else synced
        elif call.name in SENDS and is_ack(call):
            order.acknowledged += 1
            order.early += synced is None or synced > call.begin
            written = synced = None
    return order
