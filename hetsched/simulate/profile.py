"""Conversion of a machine profile (a configuration with a load) to a simulated machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hetsched.config import Config, DeviceConfig, LoadConfig
from hetsched.config.cost import Cost, check_cost
from hetsched.device import DeviceInfo
from hetsched.device_kinds import DeviceKind, configured_kind
from hetsched.errors import ConfigError
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, Curve, DeviceModel, PiecewiseLinear, Polyline
from hetsched.simulate.machine import SimulatedDevice, SimulatedMachine
from hetsched.units import parse_size

MAX_UNITS = 1_000_000_000
MAX_DEVICES = 4096
"""Limit on devices: more than any machine has; planning is tested only for fewer."""


def machine_of(config: Config, source: str) -> SimulatedMachine:
    """Make the machine that a profile describes.

    Parameters
    ----------
    config : Config
    source : str
        File name, for messages.

    Raises
    ------
    ConfigError
        The load or the costs of a device are missing, or the profile contradicts itself.
    """
    if config.load is None:
        raise ConfigError(
            f"{source}: no [load]; a machine profile needs its units, input_bytes and output_bytes"
        )
    if config.load.units > MAX_UNITS:
        raise ConfigError(f"{source}: load.units: {config.load.units}, at most {MAX_UNITS}")
    if not config.device or config.device == Config().device:
        raise ConfigError(f"{source}: no [[device]]; a machine profile needs the costs of each")
    if sum(table.count or 1 for table in config.device) > MAX_DEVICES:
        raise ConfigError(f"{source}: device: more than {MAX_DEVICES}")
    limit = None if config.memory_limit is None else parse_size(config.memory_limit)
    devices = []
    numbers: Counter[str] = Counter()
    for index, table in enumerate(config.device):
        location = f"{source}: device[{index}]"
        _check(table, location)
        model = _model(table, config.load, location)
        for name in _names(table, numbers):
            devices.append(_device(name, table, f"{index}", model, config.load, limit))
    names = [device.name for device in devices]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise ConfigError(f"{source}: device: two have the name {duplicate}; rename one")
    return SimulatedMachine(config.load.units, tuple(devices))


def _check(table: DeviceConfig, location: str) -> None:
    if table.compute is None:
        raise ConfigError(f'{location}: no compute = {{ gap = "30us", unit = "2ms" }}')
    if (table.h2d is None) != (table.d2h is None):
        raise ConfigError(f"{location}: give both h2d and d2h (a link) or neither (a core)")
    has_link = _kind(table).has_link
    if has_link is False and (table.link or table.memory is not None):
        raise ConfigError(f"{location}: a {table.kind} has no link: drop h2d, d2h and memory")
    if has_link is True and not table.link:
        raise ConfigError(f"{location}: a {table.kind} has a link: give h2d and d2h")
    if table.link and table.memory is None:
        raise ConfigError(f'{location}: a device with a link needs memory = "1GiB"')
    if table.compute.rate is not None:
        raise ConfigError(
            f"{location}.compute: a rate needs flops, which a profile's load lacks; give unit"
        )
    check_cost(table.compute, f"{location}.compute", "flop")
    for name, cost in (("h2d", table.h2d), ("d2h", table.d2h)):
        if cost is not None:
            check_cost(cost, f"{location}.{name}", "B")


def _kind(table: DeviceConfig) -> DeviceKind:
    kind = configured_kind(table.kind)
    assert kind is not None, "checked when the configuration was parsed"
    return kind


def _names(table: DeviceConfig, numbers: Counter[str]) -> Iterator[str]:
    """Yield the configured name, numbered for several devices; without one, the kind's name."""
    count = table.count or 1
    if table.name is not None:
        yield from (f"{table.name}{i}" if table.count else table.name for i in range(count))
        return
    for _ in range(count):
        yield f"{_kind(table).group}{numbers[table.kind]}"
        numbers[table.kind] += 1


def _model(table: DeviceConfig, load: LoadConfig, location: str) -> DeviceModel:
    assert table.compute is not None, "checked"
    compute = _curve(table.compute, 0)
    if not table.compute.seconds(1, 0, 0) > 0:
        raise ConfigError(f"{location}.compute: a unit takes no time; give a unit above 0")
    if table.h2d is None or table.d2h is None:
        return DeviceModel(compute, compute)
    h2d, d2h = _curve(table.h2d, load.input_bytes), _curve(table.d2h, load.output_bytes)
    return DeviceModel(PiecewiseLinear(), compute, h2d, d2h, duplex=table.duplex)


def _curve(cost: Cost, unit_bytes: int) -> Curve:
    table = cost.table()
    if table is not None:
        return Polyline(table)
    gap = cost.gap_seconds()
    return Affine(gap, cost.seconds(1, unit_bytes, 0) - gap)


def _device(
    name: str,
    table: DeviceConfig,
    identity: str,
    model: DeviceModel,
    load: LoadConfig,
    limit: int | None,
) -> SimulatedDevice:
    memory = table.memory_bytes() if table.link else None
    if memory is not None and limit is not None:
        memory = min(memory, limit)
    info = DeviceInfo(
        name=name,
        kind=_kind(table).name,
        identity=identity,
        link=table.link,
        memory=memory,
        engines=table.engines if table.link else 0,
        clock="virtual",
    )
    demand = MemoryDemand(
        input_bytes=load.input_bytes,
        work_bytes=0,
        output_bytes=load.output_bytes,
        limit=memory,
    )
    return SimulatedDevice(info, model, demand)
