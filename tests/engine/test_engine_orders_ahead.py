"""Commands that are sent before their job orders them reach the process once, or end it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from hetsched.config import DeviceConfig
from hetsched.device import Chunk, DeviceInfo
from hetsched.devices.process_spec import ProcessSpec
from hetsched.engine.processes.hosted_process import HostedProcess
from hetsched.engine.processes.orders_ahead import OrdersAhead, RecordedOrders
from hetsched.transport.device_messages import (
    CommandBatch,
    DeviceCommand,
    Fill,
    Prepare,
    Release,
    Run,
    StoredArray,
)

SEGMENT = 7


class Process:
    """A device process that takes every message."""

    def __init__(self) -> None:
        self.sent: list[DeviceCommand] = []
        self.is_killed = False

    def send(self, message: Any, fds: Any = ()) -> None:
        self.sent += message.commands if isinstance(message, CommandBatch) else [message]

    def kill(self) -> None:
        self.is_killed = True


class Turns:
    """A loop whose next round never comes: what it was asked for stays undone."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        pass

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        pass


LOOP: Any = Turns()


def hosted(name: str = "cpu0") -> tuple[HostedProcess, Process]:
    process = Process()
    info = DeviceInfo(name=name, kind="cpu", identity="x")
    spec = ProcessSpec(package="cpu", devices=(info,), config=DeviceConfig(kind="cpu"))
    host = HostedProcess(spec, cast(Any, process), is_ready=True)
    host.attached.add(SEGMENT)
    return host, process


def prepare(job: int, *, answer: bool = False) -> Prepare:
    array = StoredArray(array="x", key=SEGMENT, shape=(1, 8), dtype="<c8")
    return Prepare(
        job=job,
        device=0,
        workload="w",
        params=b"{}",
        variant="v",
        arrays=(array,),
        chunk=1,
        answer=answer,
    )


def run(job: int, count: int = 1) -> Run:
    return Run(job, 0, (Chunk(0, 0, count),))


def order(host: HostedProcess, *commands: DeviceCommand) -> None:
    for command in commands:
        host.post(command, LOOP)


def recorded(hosts: list[HostedProcess], *commands: DeviceCommand) -> RecordedOrders | None:
    """The first commands of attempt 1, which were posted to the first of `hosts`."""
    order(hosts[0], *commands)
    orders = OrdersAhead(hosts).record(1, [SEGMENT])
    hosts[0].flush()
    return orders


def test_the_commands_of_an_equal_job_are_sent_before_it_orders_them() -> None:
    host, process = hosted()
    orders = recorded([host], prepare(1), run(1))
    assert orders is not None
    ahead = OrdersAhead([host])
    process.sent.clear()

    host.post_late(Release(1, 0), LOOP)
    assert ahead.can_repeat(orders)
    ahead.repeat(orders, 2)
    before = list(process.sent)
    order(host, prepare(2), run(2))
    ahead.end(orders)
    host.flush()

    assert before == process.sent == [Release(1, 0), prepare(2), run(2)]
    assert not process.is_killed


def test_after_them_commands_are_sent_as_always() -> None:
    host, process = hosted()
    orders = recorded([host], prepare(1), run(1))
    assert orders is not None
    OrdersAhead([host]).repeat(orders, 2)
    order(host, prepare(2), run(2), run(2, count=5))
    host.flush()

    assert process.sent[-1] == run(2, count=5)


@pytest.mark.parametrize(
    "commands",
    [
        [run(2)],
        [prepare(2), run(2, count=5)],
        [prepare(2, answer=True), run(2)],
        [prepare(3), run(3)],
        [prepare(2)],
        [],
    ],
)
def test_a_process_that_got_what_its_job_does_not_order_is_killed(
    commands: list[DeviceCommand],
) -> None:
    host, process = hosted()
    orders = recorded([host], prepare(1), run(1))
    assert orders is not None
    ahead = OrdersAhead([host])

    ahead.repeat(orders, 2)
    order(host, *commands)
    ahead.end(orders)

    assert process.is_killed
    assert not host.ahead, "the next process gets every command"


def test_a_process_that_ended_meanwhile_is_not_killed_again() -> None:
    host, process = hosted()
    orders = recorded([host], prepare(1), run(1))
    assert orders is not None
    ahead = OrdersAhead([host])
    ahead.repeat(orders, 2)
    host.process = None

    ahead.end(orders)

    assert not process.is_killed


def test_commands_that_are_answered_or_depend_on_the_job_are_not_recorded() -> None:
    assert recorded([hosted()[0]], prepare(1, answer=True)) is None
    assert recorded([hosted()[0]], prepare(1), Fill(1, 0, "x", 0, 1, seed=3)) is None
    assert recorded([hosted()[0]], prepare(2), run(2)) is None, "of another attempt"
    assert recorded([hosted()[0]]) is None


def restarts(hosts: list[HostedProcess]) -> None:
    hosts[0].process = cast(Any, Process())


def becomes_ready(hosts: list[HostedProcess]) -> None:
    hosts[1].is_ready = not hosts[1].is_ready


def loses_an_array(hosts: list[HostedProcess]) -> None:
    hosts[0].attached.clear()


def grows(hosts: list[HostedProcess]) -> None:
    hosts.append(hosted("cpu2")[0])


@pytest.mark.parametrize("change", [restarts, becomes_ready, loses_an_array, grows])
def test_commands_are_not_repeated_in_a_changed_fleet(change: Any) -> None:
    hosts = [hosted("cpu0")[0], hosted("cpu1")[0]]
    orders = recorded(hosts, prepare(1), run(1))
    assert orders is not None
    assert OrdersAhead(hosts).can_repeat(orders)

    change(hosts)

    assert not OrdersAhead(hosts).can_repeat(orders)
