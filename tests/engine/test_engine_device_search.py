"""The search for missing devices, on a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from clock_loop import ClockLoop

from hetsched.config import Config
from hetsched.devices.process_spec import Probe
from hetsched.engine.processes import device_search
from hetsched.engine.processes.device_search import DeviceSearch
from hetsched.engine.threads.step import Step


class Bench:
    """A fleet without a GPU until `gpu_is_there`; `probed` are the times of the searches."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.loop, self.probed = ClockLoop(), list[float]()
        self.gpu_is_there, self.is_broken = False, False
        self.fleet = SimpleNamespace(
            absent={"gpu": "no driver"}, update=self.update, retry_abandoned=lambda: None
        )
        threads = SimpleNamespace(submit=self.submit)
        patch.setattr(device_search, "probe", self.probe)
        parts = cast(Any, self.fleet), cast(Any, threads), cast(Any, self.loop)
        self.search = DeviceSearch(Config(), *parts)

    def submit(self, work: Callable[[Step], Any], on_done: Callable[[Any, Any], None]) -> None:
        try:
            on_done(work(Step()), None)
        except ValueError as error:
            on_done(None, error)

    def probe(self, config: Config) -> Probe:
        self.probed.append(self.loop.now - 100.0)
        if self.is_broken:
            raise ValueError("no such core")
        return Probe((), {} if self.gpu_is_there else {"gpu": "no driver"})

    def update(self, result: Probe) -> tuple[str, ...]:
        self.fleet.absent = result.absent
        return () if result.absent else ("gpu0",)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_a_missing_device_is_looked_for_after_1_2_4_minutes(bench: Bench) -> None:
    bench.search.schedule()
    bench.search.schedule()

    bench.loop.pass_time(1000.0)

    assert bench.probed == [60.0, 180.0, 420.0, 900.0]


def test_a_device_that_was_found_ends_the_search(bench: Bench) -> None:
    bench.search.schedule()
    bench.gpu_is_there = True

    bench.loop.pass_time(1000.0)

    assert bench.probed == [60.0]


def test_an_unexpected_error_doesn_t_end_the_search(bench: Bench) -> None:
    def fail(result: Probe) -> tuple[str, ...]:
        raise RuntimeError("no such process")

    bench.fleet.update = fail
    bench.search.schedule()

    for _ in range(2):
        with pytest.raises(RuntimeError):
            bench.loop.pass_time(200.0)

    assert bench.probed == [60.0, 180.0]


def test_with_all_devices_nothing_is_searched(bench: Bench) -> None:
    bench.fleet.absent = {}
    bench.search.schedule()

    bench.loop.pass_time(1000.0)

    assert bench.probed == []


def test_a_search_on_request_answers_even_if_it_fails(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.is_broken = True
    answers = list[str]()

    bench.search.search(lambda: answers.append("answered"))

    assert answers == ["answered"]
    assert "no such core" in caplog.text


def test_a_closed_search_is_over(bench: Bench) -> None:
    bench.search.schedule()
    bench.search.close()

    bench.loop.pass_time(1000.0)

    assert bench.probed == []
