"""From a machine profile, which is a configuration with a load, to devices that are curves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hetsched.config import Config, Cost, DeviceConfig, LoadConfig, check_cost
from hetsched.device import DeviceInfo
from hetsched.device_kinds import DeviceKind, configured_kind
from hetsched.errors import ConfigError
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.simulate.machine import Machine, Simulated
from hetsched.units import parse_size

MOST_UNITS = 10_000_000
MOST_DEVICES = 4096
"""More than any machine has; planning is only tried for fewer."""


def machine_of(config: Config, source: str) -> Machine:
    """The machine that a profile describes.

    Parameters
    ----------
    config : Config
    source : str
        Where it came from, for messages.

    Raises
    ------
    ConfigError
        The profile doesn't say what the load or a device costs, or contradicts itself.
    """
    if config.load is None:
        raise ConfigError(
            f"{source}: no [load]; a machine profile says its units, input_bytes and output_bytes"
        )
    if config.load.units > MOST_UNITS:
        raise ConfigError(f"{source}: load.units: {config.load.units}, at most {MOST_UNITS}")
    if not config.device or config.device == Config().device:
        raise ConfigError(f"{source}: no [[device]]; a machine profile says what each one costs")
    if sum(table.count or 1 for table in config.device) > MOST_DEVICES:
        raise ConfigError(f"{source}: device: more than {MOST_DEVICES} of them")
    limit = None if config.memory_limit is None else parse_size(config.memory_limit)
    devices = []
    numbers: Counter[str] = Counter()
    for index, table in enumerate(config.device):
        where = f"{source}: device[{index}]"
        _check(table, where)
        model = _model(table, config.load, where)
        for name in _names(table, numbers):
            devices.append(_device(name, table, f"{index}", model, config.load, limit))
    names = [one.info.name for one in devices]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{source}: device: two are called {twice}; give another name")
    return Machine(config.load.units, tuple(devices))


def _check(table: DeviceConfig, where: str) -> None:
    if table.compute is None:
        raise ConfigError(f'{where}: no compute = {{ gap = "30us", unit = "2ms" }}')
    if (table.h2d is None) != (table.d2h is None):
        raise ConfigError(f"{where}: give both h2d and d2h (a link) or neither (a core)")
    has_link = _kind(table).has_link
    if has_link is False and (table.link or table.memory is not None):
        raise ConfigError(f"{where}: a {table.kind} has no link: drop h2d, d2h and memory")
    if has_link is True and not table.link:
        raise ConfigError(f"{where}: a {table.kind} has a link: give h2d and d2h")
    if table.link and table.memory is None:
        raise ConfigError(f'{where}: a device with a link needs memory = "1GiB"')
    if table.compute.rate is not None:
        raise ConfigError(
            f"{where}.compute: a rate needs flops, which a profile's load doesn't have; give unit"
        )
    check_cost(table.compute, f"{where}.compute", "flop")
    for name, cost in (("h2d", table.h2d), ("d2h", table.d2h)):
        if cost is not None:
            check_cost(cost, f"{where}.{name}", "B")


def _kind(table: DeviceConfig) -> DeviceKind:
    kind = configured_kind(table.kind)
    assert kind is not None, "checked when the configuration was parsed"
    return kind


def _names(table: DeviceConfig, numbers: Counter[str]) -> Iterator[str]:
    """As `name`, or with a number where there are several or none was given."""
    count = table.count or 1
    if table.name is not None:
        yield from (f"{table.name}{i}" if table.count else table.name for i in range(count))
        return
    for _ in range(count):
        yield f"{_kind(table).group}{numbers[table.kind]}"
        numbers[table.kind] += 1


def _model(table: DeviceConfig, load: LoadConfig, where: str) -> DeviceModel:
    assert table.compute is not None, "checked"
    compute = _affine(table.compute, 0)
    if not table.compute.seconds(1, 0, 0) > 0:
        raise ConfigError(f"{where}.compute: a unit takes no time; give a unit above 0")
    if table.h2d is None or table.d2h is None:
        return DeviceModel(compute, compute)
    h2d, d2h = _affine(table.h2d, load.input_bytes), _affine(table.d2h, load.output_bytes)
    return DeviceModel(PiecewiseLinear(), compute, h2d, d2h, duplex=table.duplex)


def _affine(cost: Cost, unit_bytes: int) -> Affine:
    gap = cost.gap_seconds()
    return Affine(gap, cost.seconds(1, unit_bytes, 0) - gap)


def _device(
    name: str,
    table: DeviceConfig,
    identity: str,
    model: DeviceModel,
    load: LoadConfig,
    limit: int | None,
) -> Simulated:
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
    return Simulated(info, model, demand)
