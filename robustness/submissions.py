"""Many durable submissions by several clients: acknowledgements per second.

`python -m robustness.submissions FOLDER COUNT` is one of the clients.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.results import Bar, Result
from hetsched.job import JobSpec
from hetsched.transport.messages import Accepted, Submit
from robustness.daemon import CORES, Daemon, daemon
from robustness.raw_client import RawClient
from robustness.scale import Scale
from robustness.workloads import NAPS

CLIENTS = 8
IN_FLIGHT = 100
CONFIG = CORES + '[queue]\nlimit = 1000000\nparameters = "1GiB"\n'
SPEC = JobSpec(workload=NAPS, params={"units": 1}, hold=True)
"""Held, so that acknowledgements are measured and not jobs."""


def measure(scale: Scale) -> Result:
    count = scale.of(400, 20_000, 100_000)
    result = Result(
        "submissions",
        f"{CLIENTS} clients submit",
        ("durable submissions", "acknowledged per second"),
    )
    with daemon(CONFIG) as served:
        rate = acknowledged_per_second(served, count)
    result.rows.append((str(count), f"{rate:.0f}"))
    result.data.append({"count": count, "per_second": rate})
    result.bars.append(Bar("acknowledgements per second", rate, 1500))
    return result


def acknowledged_per_second(served: Daemon, count: int) -> float:
    """Have `CLIENTS` processes submit `count` jobs; return the rate between first and last."""
    command = [sys.executable, "-m", "robustness.submissions", str(served.folder)]
    clients = [
        subprocess.Popen(
            [*command, str(count // CLIENTS)], stdout=subprocess.PIPE, env=served.environment
        )
        for _ in range(CLIENTS)
    ]
    spans = [json.loads(client.communicate()[0]) for client in clients]
    refused = [span["refused"] for span in spans if span["refused"]]
    assert not refused, refused
    begin, end = min(span["begin"] for span in spans), max(span["end"] for span in spans)
    return count / (end - begin)


def submit(folder: Path, count: int) -> dict[str, Any]:
    """Submit `count` jobs, many in flight; return when that began and ended."""
    with RawClient(folder) as client:
        begin = time.monotonic()
        answers = client.pipeline(lambda _: Submit(SPEC, follow=False), count, IN_FLIGHT)
        end = time.monotonic()
    refused = [str(answer) for answer in answers if not isinstance(answer, Accepted)]
    return {"begin": begin, "end": end, "refused": refused[:1]}


if __name__ == "__main__":
    print(json.dumps(submit(Path(sys.argv[1]), int(sys.argv[2]))))
