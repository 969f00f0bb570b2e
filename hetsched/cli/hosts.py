"""What the commands do with --cluster: one job over its hosts, a check of them, a screen."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from hetsched.cli.progress import has_bars
from hetsched.cli.terminal import answer, note
from hetsched.errors import Cancelled, HetschedError, JobFailed, UsageError
from hetsched.job import FileOut, FileRef, JobSpec
from hetsched.text import columns, number
from hetsched.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.text import Text

    from hetsched.hosts.channel import Status

MAX_CLOCK_OFFSET = 1.0
"""Seconds; more than that makes logs and files of several hosts hard to compare."""
CHECK_PATIENCE = 30.0
"""Seconds for hosts to start."""
HERE = "here"
TAKEN = (
    "workload", "params", "inputs", "outputs", "devices", "memory_limit", "verify", "seed",
    "every",
)  # fmt: skip
"""Fields of a JobSpec that a job over hosts may have."""


def run_on_hosts(spec: JobSpec, cluster: str, insecure: bool, force: bool, json: bool) -> None:
    """Run a job there, and print which host did what. Raises UsageError for other options."""
    for field in msgspec.structs.fields(JobSpec):
        value = getattr(spec, field.name)
        if field.name not in TAKEN and value and value != field.default:
            raise UsageError(f"--{field.name.replace('_', '-')} isn't for a job over hosts")
    from hetsched.hosts.client import connect

    with connect(cluster, insecure=insecure) as client:
        if has_bars():
            note(f"hosts: {', '.join(client.hosts())}")
        job = client.submit(
            spec.workload,
            {n: ref.path for n, ref in spec.inputs.items() if isinstance(ref, FileRef)} or None,
            out={n: o.path for n, o in spec.outputs.items() if isinstance(o, FileOut)} or None,
            force=force,
            seed=spec.seed,
            devices=spec.devices,
            memory_limit=spec.memory_limit,
            verify=spec.verify,
            every=spec.every,
            **spec.params,
        )
        try:
            result = job.result()
        except KeyboardInterrupt:
            job.cancel()
            raise Cancelled("interrupted; the job over hosts was cancelled") from None
    outcome = job.outcome
    assert outcome is not None
    saved = [result] if isinstance(result, str) else []
    if isinstance(result, dict):
        saved = [value for value in result.values() if isinstance(value, str)]
    record = {"workload": spec.workload, **outcome.record(), "outputs": saved}
    lines = [f"{spec.workload} over hosts: {format_seconds(outcome.seconds)}"]
    lines += outcome.explain().splitlines()
    lines += [f"result: {path}" for path in saved] or ["next: --output FILE saves the result"]
    answer(json, "hosts/1", record, lines)


# ---- doctor


def check_hosts(cluster: str, insecure: bool, json: bool) -> int:
    """Measure the links of hosts, and print them; return the code of the first problem.

    Raises HetschedError if there is no host.
    """
    from hetsched.hosts.channel import LinkTimes
    from hetsched.hosts.client import connect

    with connect(cluster, insecure=insecure, patience=CHECK_PATIENCE) as client:
        problems = client.refused()
        found = client.measure_links()
    rows, records, versions = [], [], {}
    for (source, target), link in found.items():
        names = {"from": source or HERE, "to": target}
        if isinstance(link, HetschedError):
            problems.append(type(link)(f"{names['from']} to {target}: {link}"))
            continue
        assert isinstance(link, LinkTimes)
        fields = {"latency": link.latency, "bandwidth": link.bandwidth}
        fields |= {"clock_offset": link.clock_offset}
        records.append({**names, **fields, **link.about})
        cells = (format_seconds(link.latency), f"{format_bytes(link.bandwidth)}/s")
        rows.append((names["from"], target, *cells, f"{1e3 * link.clock_offset:+.1f} ms"))
        if not source:
            versions[target] = link.about
            if abs(link.clock_offset) > MAX_CLOCK_OFFSET:
                ahead = format_seconds(abs(link.clock_offset))
                problems.append(JobFailed(f"{target}: its clock differs by {ahead}"))
    lines = columns(("from", "to", "latency", "bandwidth", "clock"), rows, 2)
    lines += [
        f"{host}: {', '.join(f'{name} {version}' for name, version in about.items())}"
        for host, about in versions.items()
    ]
    lines += [f"PROBLEM: {problem}" for problem in problems]
    code = next((problem.code for problem in problems), 0)
    record = {"code": code, "links": records, "problems": [str(each) for each in problems]}
    answer(json, "links/1", record, lines)
    return code


# ---- top


@contextlib.contextmanager
def hosts_screen(cluster: str, insecure: bool) -> Iterator[Callable[[], list[Text]]]:
    """Connect; yield what returns the lines of a screen, with speeds since the call before."""
    from rich.text import Text

    from hetsched.hosts.client import connect

    before: dict[str, tuple[float, Status]] = {}

    def row(host: str, now: float, status: Status | None) -> tuple[str, ...]:
        if status is None:
            return (host, "gives no answer", *[""] * 4)
        speed, busy = None, "-"
        if host in before:
            then, earlier = before[host]
            speed = (status.units - earlier.units) / (now - then)
            busy = f"{(status.busy - earlier.busy) / (now - then):.0%}"
        doing = ", ".join(status.doing) or "idle"
        return (host, doing, str(status.units), number(speed), busy, f"{status.load:.2f}")

    with connect(cluster, insecure=insecure) as client:

        def lines() -> list[Text]:
            found, now = client.status(), time.monotonic()
            rows = [row(host, now, status) for host, status in sorted(found.items())]
            before.clear()
            before.update({host: (now, status) for host, status in found.items() if status})
            titles = ("host", "doing", "units", "units/s", "busy", "load")
            header, *others = columns(titles, rows, 2)
            problems = [Text(str(error), "dim") for error in client.refused()]
            title = Text(f"hetsched at {cluster}: {counted(len(rows), 'host')}", "bold")
            return [title, Text(), Text(header, "bold"), *map(Text, others), *problems]

        yield lines
