"""What every runtime of an accelerator must do: in order within a queue, and between queues only
where one waits for another's event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from hetsched.devices.accelerator.runtime import Copy, Fault, Runtime
from hetsched.testing.toys import WIDTH, Affine, Make, ToyParams, shared
from hetsched.workload import KernelContext

ROUNDS = 20
"""Times that the same memory is filled, computed and emptied."""
UNITS = 300


class RuntimeSuite:
    """The conformance suite of runtimes; see `DeviceSuite`."""

    makers: Mapping[str, Make] = {}

    def open_runtime(self) -> Runtime:
        raise NotImplementedError

    def test_bytes_arrive_where_they_belong(self) -> None:
        with self.opened() as runtime:
            queue, done = runtime.queue(), runtime.event()
            block = runtime.allocate(4096)
            there, back = shared((4096,), "uint8"), shared((4096,), "uint8")
            there[...] = np.arange(4096) % 251
            queue.copy_in([Copy(block, 0, there[:1000]), Copy(block, 1000, there[1000:])], 1)
            queue.clear(block, 512, 256)
            queue.copy_out([Copy(block, 40, back[40:])], 1)
            queue.record(done)
            done.wait()
            there[512:768], there[:40] = 0, 0
            assert np.array_equal(back, there), "other bytes come back"

    def test_queues_wait_for_each_other(self) -> None:
        with self.opened() as runtime:
            assert self._rounds(runtime) == [], "some rounds are wrong"

    def _rounds(self, runtime: Runtime) -> list[int]:
        """Return the rounds of copy in, kernel and copy out in three queues that are wrong."""
        copy_in, compute, copy_out = (runtime.queue() for _ in range(3))
        shape = (UNITS, WIDTH)
        nbytes = 8 * UNITS * WIDTH
        block = runtime.allocate(2 * nbytes)
        x = compute.array(block, 0, shape, "<f8")
        y = compute.array(block, nbytes, shape, "<f8")
        context = KernelContext(runtime.kernels, xp=runtime.xp)
        workload = Affine(self.makers.get("affine"))
        kernel = workload.variants(runtime.kernels)[0].make(ToyParams(UNITS), UNITS, context)
        given, found = (shared((ROUNDS, *shape), "float64") for _ in range(2))
        pinned = [given, found] if runtime.facts.can_pin else []  # else the host waits for copies
        for host in pinned:
            runtime.pin(host)
        came, computed, left = (runtime.event() for _ in range(3))
        for number in range(ROUNDS):
            given[number][...] = number + np.arange(WIDTH)
            copy_in.wait(left)
            copy_in.copy_in([Copy(block, 0, given[number])], UNITS)
            copy_in.record(came)
            compute.wait(came)
            compute.launch(lambda: kernel({"x": x}, {"y": y}), UNITS)
            compute.record(computed)
            copy_out.wait(computed)
            copy_out.copy_out([Copy(block, nbytes, found[number])], UNITS)
            copy_out.record(left)
        runtime.synchronize()
        for host in pinned:
            runtime.unpin(host)
        return [n for n in range(ROUNDS) if not np.array_equal(found[n], 2 * given[n] + 1)]

    def test_events_say_when_they_passed(self) -> None:
        with self.opened() as runtime:
            queue, block = runtime.queue(), runtime.allocate(1 << 20)
            before, after = runtime.event(), runtime.event()
            queue.record(before)
            queue.copy_in([Copy(block, 0, shared((1 << 20,), "uint8"))], 1)
            queue.record(after)
            after.wait()
            assert after.is_done() and before.is_done(), "an event hasn't passed after a wait"
            assert 0 <= after.seconds_after(before) < 60, "a copy takes no such time"

    def test_memory_counts_and_what_is_too_large_is_refused(self) -> None:
        with self.opened() as runtime:
            before = runtime.memory().free
            block = runtime.allocate(1 << 20)
            assert runtime.memory().free <= before - (1 << 20), "a block takes no memory"
            try:
                runtime.allocate(runtime.memory().total + (1 << 20))
            except Exception as error:
                assert runtime.classify(error) is Fault.MEMORY, f"{error!r} isn't one of memory"
            else:
                raise AssertionError("more memory than there is was given")
            del block
            runtime.trim()
            assert runtime.memory().free >= before, "a block that was dropped takes memory"

    def test_host_memory_can_be_pinned_and_unpinned_if_it_says_so(self) -> None:
        with self.opened() as runtime:
            if not runtime.facts.can_pin:
                return
            queue, block, done = runtime.queue(), runtime.allocate(8192), runtime.event()
            host = shared((8192,), "uint8")
            for part in (host[:4096], host[4096:]):
                runtime.pin(part)
                queue.copy_in([Copy(block, 0, part)], 1)
            queue.record(done)
            done.wait()
            for part in (host[:4096], host[4096:]):
                runtime.unpin(part)

    @contextmanager
    def opened(self) -> Iterator[Runtime]:
        runtime: Any = self.open_runtime()
        try:
            yield runtime
        finally:
            runtime.synchronize()
