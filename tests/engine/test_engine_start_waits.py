"""When it is certain which processes are usable."""

from __future__ import annotations

import pytest

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.process_spec import ProcessSpec
from hetsched.engine.processes.hosted_process import MAX_FAILED_STARTS, HostedProcess
from hetsched.engine.processes.start_waits import StartWaits, is_settled


def host(name: str, *, lazy: bool = False, **state: bool | int) -> HostedProcess:
    spec = ProcessSpec(
        package="hetsched.devices.cpu",
        devices=(DeviceInfo(name=name, kind="cpu", identity="test"),),
        config=DeviceConfig(kind="cpu"),
        lazy=lazy,
    )
    return HostedProcess(spec, **state)  # type: ignore[arg-type]


def restarting() -> HostedProcess:
    return host("cpu0", was_ready=True)


def ready_team() -> HostedProcess:
    made = host("team0", lazy=True, is_ready=True, was_ready=True)
    made.on_demand = False
    return made


def test_a_restart_is_waited_for_only_on_request_if_another_process_is_ready() -> None:
    hosts = [restarting(), ready_team()]

    assert is_settled(hosts)
    assert not is_settled(hosts, with_restarts=True)


@pytest.mark.parametrize("with_restarts", [False, True])
def test_a_process_that_no_longer_starts_and_one_on_demand_are_not_waited_for(
    with_restarts: bool,
) -> None:
    hosts = [host("cpu0", failed_starts=MAX_FAILED_STARTS), host("team0", lazy=True)]

    assert is_settled(hosts, with_restarts=with_restarts)


def test_a_restart_is_waited_for_if_no_other_process_is_ready() -> None:
    assert not is_settled([restarting(), host("team0", lazy=True)])


def test_an_exception_in_one_callback_doesn_t_keep_the_others_waiting() -> None:
    waits, is_ready, called = StartWaits(), list[bool](), list[str]()
    waits.call_when(lambda: bool(is_ready), lambda: called.remove("never added"))
    waits.call_when(lambda: bool(is_ready), lambda: called.append("second"))
    is_ready.append(True)

    waits.recheck()

    assert called == ["second"]
