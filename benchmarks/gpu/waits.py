"""How the host waits: asleep, woken at once on a busy core, and without an error left behind."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time

from benchmarks.gpu.common import MIB, Report, mapped, open_runtime
from hetsched.devices.accelerator.runtime import Copy, Runtime
from hetsched.devices.cuda.driver import sleeps_while_waiting

ROUNDS = 200
BUSY = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
while True: pass
"""
"""The program of a core that computes, like those of a job."""


def measure(report: Report) -> None:
    runtime = open_runtime(report.dry)
    synchronize(report, runtime, 8 * MIB if report.dry else 256 * MIB)
    pending_event(report, runtime)
    wake_up(report, runtime)


def synchronize(report: Report, runtime: Runtime, nbytes: int) -> None:
    """Measure the processor time of deviceSynchronize, which must not spin."""
    host, block, queue = mapped(nbytes), runtime.allocate(nbytes), runtime.queue()
    runtime.pin(host)
    for _ in range(2 if report.dry else 100):
        queue.copy_in([Copy(block, 0, host)], 1)
    wall, processor = time.perf_counter(), time.thread_time()
    runtime.synchronize()
    wall, processor = time.perf_counter() - wall, time.thread_time() - processor
    runtime.unpin(host)
    report.put(
        waits_sleep=sleeps_while_waiting(),
        synchronize_seconds=wall,
        synchronize_processor_seconds=processor,
    )
    if not report.dry and processor > 0.5 * wall:
        raise RuntimeError("deviceSynchronize spins")


def pending_event(report: Report, runtime: Runtime) -> None:
    """Query an event that hasn't passed, then use Thrust and CUB, which check the last error."""
    nbytes = MIB if report.dry else 64 * MIB
    host, block = mapped(nbytes), runtime.allocate(nbytes)
    queue, event = runtime.queue(), runtime.event()
    runtime.pin(host)
    queue.copy_in([Copy(block, 0, host)], 1)
    queue.record(event)
    is_pending = not event.is_done()
    values = runtime.xp.arange(1000)[::-1]
    is_right = int(runtime.xp.sort(values)[0]) == 0 and int(values.sum()) == 499500
    event.wait()
    runtime.unpin(host)
    report.put(was_pending=is_pending, thrust_and_cub_are_right=is_right)
    if not is_right:
        raise RuntimeError("Thrust or CUB gave a wrong result after the query of a pending event")


def wake_up(report: Report, runtime: Runtime) -> None:
    """Measure how long a small copy takes on a core that computes, as each kind of thread."""
    core = max(os.sched_getaffinity(0))
    command = [sys.executable, "-c", BUSY, str(core)]
    for policy in ("SCHED_OTHER", "SCHED_BATCH"):
        busy = subprocess.Popen(command)
        try:
            times: list[float] = []
            arguments = (runtime, core, getattr(os, policy), times)
            thread = threading.Thread(target=copy_on, args=arguments)
            thread.start()
            thread.join()
        finally:
            busy.kill()
            busy.wait()
        report.row("wake_up", policy=policy, median=statistics.median(times), longest=max(times))


def copy_on(runtime: Runtime, core: int, policy: int, times: list[float]) -> None:
    """Time copies and the waits for them, on `core`."""
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, policy, os.sched_param(0))
    nbytes = MIB
    host, block = mapped(nbytes), runtime.allocate(nbytes)
    queue, event = runtime.queue(), runtime.event()
    runtime.pin(host)
    for _ in range(ROUNDS):
        start = time.perf_counter()
        queue.copy_in([Copy(block, 0, host)], 1)
        queue.record(event)
        event.wait()
        times.append(time.perf_counter() - start)
    runtime.unpin(host)
