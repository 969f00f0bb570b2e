"""One instance of hetsched: a fresh daemon and client, warm jobs of one FFT case.

    python -m benchmarks.warm_instance CASE_JSON

The case has `state` (a folder, kept between the instances of a case, so that the daemon knows its
models), `command` (the ``hetsched`` that serves), `warm_up` and `rounds`. Writes one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import processor_time
from benchmarks.peers.fft_case import fill, worst
from benchmarks.serving import Served, daemon, report

SETTLE = 0.02
"""Seconds between jobs: the daemon may learn, as it does between a user's jobs."""
SETTLED = 3
"""Consecutive runs by the same variants before the repetitions begin."""


def main() -> None:
    case = json.loads(sys.argv[1])
    with daemon(environment=case["environment"] and Path(case["environment"]),
                folder=case["state"]) as served:  # fmt: skip
        print(json.dumps(measured(served, case)), flush=True)


def measured(served: Served, case: dict[str, Any]) -> dict[str, Any]:
    client = served.client
    x, y = client.empty(case["shape"], case["dtype"]), client.empty(case["shape"], case["dtype"])
    fill(x)
    seen: list[list[str]] = []
    job: Any = None

    def run() -> float:
        nonlocal job
        time.sleep(SETTLE)
        start = time.perf_counter()
        job = client.submit("fft", x, out=y)
        job.result()
        return time.perf_counter() - start

    while len(seen) < case["warm_up"] or len(set(map(tuple, seen[-SETTLED:]))) > 1:
        run()
        seen.append(sorted({device.variant for device in report(job).devices}))
        if len(seen) >= 2 * case["warm_up"]:
            break
    before = processor_time.of_process(served.process.pid)
    seconds = [run() for _ in range(case["rounds"])]
    used = (processor_time.of_process(served.process.pid) - before) / case["rounds"]
    return {
        "seconds": seconds,
        "error": worst(x, y),
        "daemon_seconds": used,
        "run_seconds": report(job).seconds,
        "variants": sorted({device.variant for device in report(job).devices}),
        "load_average": os.getloadavg()[0],
    }


if __name__ == "__main__":
    main()
