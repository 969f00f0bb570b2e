from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

import pytest

from hetsched.engine.threads import Pool, enter
from hetsched.errors import TryAgain
from hetsched.transport.loop import Loop

PATIENCE = 60.0


@pytest.fixture
def loop() -> Iterator[Loop]:
    with contextlib.closing(Loop()) as loop:
        yield loop


def test_a_task_for_which_no_thread_can_be_started_is_refused_and_never_run(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool, done = Pool(loop, 4, PATIENCE), list[str]()

    async def story() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            with pytest.raises(TryAgain, match="no thread can be started; try again"):
                await pool.call(lambda: done.append("refused"))
        await pool.call(lambda: done.append("next"))

    loop.run_until_complete(story())
    assert done == ["next"]
    pool.close(PATIENCE)


def test_an_endless_loop_in_python_is_given_up_by_name_and_ended(loop: Loop) -> None:
    pool, released = Pool(loop, 4, PATIENCE), threading.Event()

    def spin() -> None:
        enter("infer of toy", is_interruptible=True)
        while not released.is_set():
            pass

    async def story() -> None:
        with pytest.raises(TryAgain, match=r"infer of toy hasn't returned for 0\.05 s; try again"):
            await pool.call(spin, deadline=0.05)
        async with asyncio.timeout(PATIENCE):
            while pool.hanging():
                await asyncio.sleep(0.001)

    try:
        loop.run_until_complete(story())
    finally:
        released.set()
    pool.close(PATIENCE)
