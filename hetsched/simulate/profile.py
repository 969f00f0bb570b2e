"""Conversion of a machine profile (a configuration with a load) to a simulated machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from hetsched.config import Config, Cost, DeviceConfig, check_costs
from hetsched.device import DeviceInfo, DeviceKind, configured_kind
from hetsched.errors import ConfigError
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, Curve, DeviceModel, PiecewiseLinear, Polyline
from hetsched.simulate.machine import SimulatedDevice, SimulatedMachine

MAX_UNITS = 1_000_000_000


@dataclass(frozen=True)
class ProfiledLoad:
    units: int
    input_bytes: float  # copied for a unit
    output_bytes: float
    flops: float  # of a unit
    demand: Callable[[str], MemoryDemand]  # kind of device -> bytes there, without a limit


def machine_of(config: Config, source: str) -> SimulatedMachine:
    """Make the machine that a profile describes, with the profile's own load.

    `source`: the file name, for messages. Raises ConfigError: the load or the costs of a device
    are missing, or the profile contradicts itself.
    """
    load = config.load
    if load is None:
        raise ConfigError(
            f"{source}: no [load]; a machine profile needs its units, input_bytes and output_bytes"
        )
    if load.units > MAX_UNITS:
        raise ConfigError(f"{source}: load.units: {load.units}, at most {MAX_UNITS}")
    for index, table in enumerate(config.device):
        if table.compute is not None and table.compute.rate is not None:
            raise ConfigError(
                f"{source}: device[{index}].compute: a rate needs flops, which a profile's load"
                " lacks; give unit"
            )
    demand = MemoryDemand(
        input_bytes=load.input_bytes, work_bytes=0, output_bytes=load.output_bytes
    )
    profiled = ProfiledLoad(
        load.units, load.input_bytes, load.output_bytes, 0.0, lambda kind: demand
    )
    return machine_for(config, source, profiled, config.memory_limit)


def machine_for(
    config: Config, source: str, load: ProfiledLoad, limit: int | None = None
) -> SimulatedMachine:
    """Make the machine that a profile describes, with any load.

    `limit`: bytes of device memory to use; None: all.
    """
    if not config.device or config.device == Config().device:
        raise ConfigError(f"{source}: no [[device]]; a machine profile needs the costs of each")
    devices = []
    numbers: Counter[str] = Counter()
    for index, table in enumerate(config.device):
        location = f"{source}: device[{index}]"
        kind = configured_kind(table.kind)
        assert kind is not None, "checked when the configuration was parsed"
        check_costs(table, location)
        if kind.has_link is False and (table.link or table.memory is not None):
            raise ConfigError(f"{location}: a {table.kind} has no link: drop h2d, d2h and memory")
        if kind.has_link is True and not table.link:
            raise ConfigError(f"{location}: a {table.kind} has a link: give h2d and d2h")
        demand = load.demand(kind.name)
        memory = table.memory_bytes() if table.link else None
        if memory is not None and limit is not None:
            memory = min(memory, limit)
        model = _model(table, load, location)
        for name in _names(table, kind, numbers):
            info = DeviceInfo(
                name=name,
                kind=kind.name,
                identity=f"{index}",
                link=table.link,
                memory=memory,
                engines=table.engines if table.link else 0,
                clock="virtual",
            )
            devices.append(SimulatedDevice(info, model, replace(demand, limit=memory)))
    counts = Counter(device.name for device in devices)
    duplicate, count = counts.most_common(1)[0]
    if count > 1:
        raise ConfigError(f"{source}: device: two have the name {duplicate}; rename one")
    return SimulatedMachine(load.units, tuple(devices))


def _names(table: DeviceConfig, kind: DeviceKind, numbers: Counter[str]) -> Iterator[str]:
    """Yield the configured name, numbered for several devices; without one, the kind's name."""
    count = table.count or 1
    if table.name is not None:
        yield from (f"{table.name}{i}" if table.count else table.name for i in range(count))
        return
    for _ in range(count):
        yield f"{kind.group}{numbers[kind.name]}"
        numbers[kind.name] += 1


def _model(table: DeviceConfig, load: ProfiledLoad, location: str) -> DeviceModel:
    assert table.compute is not None, "checked"
    compute = _curve(table.compute, 0.0, load.flops)
    if not table.compute.seconds(1, 0, load.flops) > 0:
        raise ConfigError(f"{location}.compute: a unit takes no time; give a unit above 0")
    if table.h2d is None or table.d2h is None:
        return DeviceModel(compute, compute)
    h2d = _curve(table.h2d, load.input_bytes, load.flops)
    d2h = _curve(table.d2h, load.output_bytes, load.flops)
    return DeviceModel(PiecewiseLinear(), compute, h2d, d2h, duplex=table.duplex)


def _curve(cost: Cost, unit_bytes: float, unit_flops: float) -> Curve:
    table = cost.table()
    if table is not None:
        return Polyline(table)
    gap = cost.gap_seconds()
    return Affine(gap, cost.seconds(1, unit_bytes, unit_flops) - gap)
