"""Time from a durable submission to its acknowledgement, beside an fsync on the same disk."""

from __future__ import annotations

import os
import statistics
import time

from benchmarks.results import Bar, Result
from hetsched.transport.messages import Accepted, Submit
from robustness.daemon import daemon
from robustness.raw_client import RawClient
from robustness.scale import Scale
from robustness.submissions import CONFIG, SPEC

PAGE = b"x" * 4096


def measure(scale: Scale) -> Result:
    rounds = scale.of(20, 300, 1000)
    result = Result(
        "durable_latency",
        "One durable submission at a time",
        ("submissions", "acknowledged after, ms", "write and fsync of 4 KiB, ms", "limit, ms"),
    )
    with daemon(CONFIG) as served, RawClient(served.folder) as client:
        acks, syncs = [], []
        with (served.folder / "state" / "fsync").open("wb", buffering=0) as file:
            for _ in range(rounds):
                begin = time.perf_counter()
                answer = client.ask(Submit(SPEC, follow=False))
                acks.append(time.perf_counter() - begin)
                assert isinstance(answer, Accepted) and answer.durability == "durable", answer
                syncs.append(_synced(file.fileno()))
    ack, sync = statistics.median(acks) * 1e3, statistics.median(syncs) * 1e3
    limit = 1.3 * sync + 1.0
    result.rows.append((str(rounds), f"{ack:.2f}", f"{sync:.2f}", f"{limit:.2f}"))
    result.data.append({"acknowledged": acks, "synced": syncs})
    result.bars.append(Bar("median ms from submission to ack", ack, limit, at_least=False))
    return result


def _synced(fd: int) -> float:
    begin = time.perf_counter()
    os.write(fd, PAGE)
    os.fsync(fd)
    return time.perf_counter() - begin
