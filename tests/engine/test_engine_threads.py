"""Tasks that hang: their deadline, their threads, and what comes after them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hetsched.engine.threads import Pool, Step
from hetsched.errors import TryAgain
from hetsched.transport.loop import Loop

SOON = 0.01
NEVER = 60.0


class Bench:
    """A loop, a pool, and tasks that hang until `let_go`."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.begun, self.released = threading.Semaphore(0), threading.Event()
        self.answers: list[tuple[Any, BaseException | None]] = []

    def pool(self, deadline: float = NEVER, size: int = 4, max_hanging: int = 16) -> Pool:
        self.work = Pool(self.loop, size, deadline, max_hanging=max_hanging)
        return self.work

    def hang(self, step: Step) -> str:
        step.enter("opening /mnt/dead")
        self.begun.release()
        self.released.wait()
        return "late"

    def wait_until_begun(self, count: int = 1) -> None:
        """Wait until so many tasks hang. Their deadlines pass only while the loop runs."""
        for _ in range(count):
            assert self.begun.acquire(timeout=NEVER)

    def answer(self, value: Any, error: BaseException | None) -> None:
        self.answers.append((value, error))

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Run the loop until `condition`, which its callbacks change."""

        def check() -> None:
            if condition():
                self.loop.stop()
            else:
                self.loop.call_later(0.001, check)

        self.loop._stopping = False
        check()
        self.loop.run_forever()

    def run_until_answered(self, count: int) -> None:
        self.run_until(lambda: len(self.answers) >= count)

    def messages(self) -> list[str]:
        return [str(error) for _, error in self.answers]


@pytest.fixture
def bench() -> Iterator[Bench]:
    others = set(threading.enumerate())
    bench = Bench()
    yield bench
    bench.released.set()
    bench.work.close(NEVER)
    for thread in set(threading.enumerate()) - others:
        thread.join(NEVER)
        assert not thread.is_alive()
    bench.loop.close()


def test_a_task_that_hangs_is_given_up_by_name(bench: Bench) -> None:
    bench.pool().submit(bench.hang, bench.answer, deadline=SOON)
    bench.wait_until_begun()
    bench.run_until_answered(1)
    assert isinstance(bench.answers[0][1], TryAgain)
    assert bench.messages() == ["opening /mnt/dead hasn't returned for 0.01 s; try again later"]


def test_a_task_for_which_no_thread_can_be_started_is_refused_and_never_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool, done = bench.pool(), list[str]()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        pool.submit(lambda step: done.append("refused"), bench.answer)
    pool.submit(lambda step: done.append("next"), bench.answer)
    bench.run_until_answered(2)

    assert bench.messages() == ["no thread can be started; try again", "None"]
    assert done == ["next"]


def test_an_endless_loop_in_python_is_ended(bench: Bench) -> None:
    def spin(step: Step) -> None:
        step.enter("infer of toy", is_interruptible=True)
        bench.begun.release()
        while not bench.released.is_set():
            pass

    pool = bench.pool()
    pool.submit(spin, bench.answer, deadline=SOON)
    bench.wait_until_begun()
    bench.run_until_answered(1)
    bench.run_until(lambda: not pool.hanging())
    assert not bench.released.is_set()
