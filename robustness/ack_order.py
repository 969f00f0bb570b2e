"""A durable job is acknowledged after its fsync, as the kernel saw it: the daemon under strace."""

from __future__ import annotations

from pathlib import Path

from benchmarks.results import Bar, Result
from robustness.daemon import CORES, daemon
from robustness.scale import Scale
from robustness.strace import AckOrder, SystemCall, ack_order, is_available, job_id, traced


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
