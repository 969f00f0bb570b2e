"""Configuration: TOML files, found by name or path, as checked records.

Which one counts: the ``--config`` flag, else HETSCHED_CONFIG, else
``$XDG_CONFIG_HOME/hetsched/config.toml``, else the shipped ``default``. Machine profiles have the
same schema, with a ``[load]`` table on top.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from hetsched.device_kinds import config_names, configured_kind
from hetsched.errors import ConfigError, HetschedError, InputMissing
from hetsched.units import parse_rate, parse_size, parse_time, shown

Fraction = Annotated[float, msgspec.Meta(gt=0, le=1)]


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one operation costs: a fixed `gap`, and a `rate` (B/s, flop/s) or a time a `unit`."""

    gap: str = "0us"
    rate: str | None = None
    unit: str | None = None

    def gap_seconds(self) -> float:
        return parse_time(self.gap)

    def seconds(self, units: int, bytes_per_unit: float, flops_per_unit: float) -> float:
        """Modelled seconds of one operation on `units` with so many bytes and flops each."""
        if self.unit is not None:
            return self.gap_seconds() + units * parse_time(self.unit)
        rate, what = parse_rate(self.rate or "")
        amount = bytes_per_unit if what == "B" else flops_per_unit
        return self.gap_seconds() + units * amount / rate


class DeviceConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``[[device]]`` table. See `docs/configuration.md`."""

    kind: str
    """A `config_name` of `hetsched.device_kinds`."""
    name: str | None = None
    count: Annotated[int, msgspec.Meta(ge=1)] | None = None
    optional: bool = False
    """A missing GPU is noted instead of being an error."""
    team: bool = True
    """Several cores may also work together as one device."""
    clock: Literal["real", "virtual"] = "real"
    core: int | None = None
    memory: str | None = None
    engines: Literal[0, 1, 2] = 2
    duplex: tuple[Fraction, Fraction] = (1.0, 1.0)
    compute: Cost | None = None
    h2d: Cost | None = None
    d2h: Cost | None = None
    host_overhead: Cost | None = None
    """Processor time that a chunk takes to be submitted and waited for (tests)."""
    seed: int = 0
    stalls: float = 0.0
    """Chance that a phase of a virtual clock lasts twenty times as long (tests)."""

    @property
    def link(self) -> bool:
        return self.h2d is not None

    def memory_bytes(self) -> int | None:
        return None if self.memory is None else parse_size(self.memory)


class ArenaConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shared memory: bytes, or shares of the machine's.

    `limit`: in all. `results`: of results that wait to be fetched; `results_for`: how long they
    do. `warm_for`: how long the daemon keeps free memory once it has neither clients nor jobs.
    """

    limit: str = "70%"
    results: str = "25%"
    results_for: str = "10m"
    warm_for: str = "1m"


class QueueConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, msgspec.Meta(ge=1)] = 1000


class LoadConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The load of a machine profile: units, and bytes a unit each way."""

    units: Annotated[int, msgspec.Meta(ge=1)]
    input_bytes: Annotated[int, msgspec.Meta(ge=0)]
    output_bytes: Annotated[int, msgspec.Meta(ge=0)]


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    device: tuple[DeviceConfig, ...] = (
        DeviceConfig(kind="cpu"),
        DeviceConfig(kind="gpu", optional=True),
    )
    memory_limit: str | None = None
    stealing: bool = True
    """A device that runs dry takes chunks from the one expected to finish last."""
    arena: ArenaConfig = ArenaConfig()
    queue: QueueConfig = QueueConfig()
    load: LoadConfig | None = None


def shipped_folder() -> Path:
    """Where the shipped configs are: beside this module in a wheel, else at the project's top."""
    inside = Path(__file__).parent / "configs"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "configs"


def shipped() -> list[str]:
    return sorted(path.stem for path in shipped_folder().glob("*.toml"))


def load(name: str | None = None) -> tuple[Config, str]:
    """The configuration called `name` (a shipped name or a path), and where it came from.

    Raises
    ------
    InputMissing, ConfigError
    """
    name = name or os.environ.get("HETSCHED_CONFIG") or None
    if name is None:
        path = _user_file()
        if not path.is_file():
            path = shipped_folder() / "default.toml"
    elif os.sep in name or name.endswith(".toml"):
        path = Path(name)
    else:
        path = shipped_folder() / f"{name}.toml"
        if name not in shipped():
            raise InputMissing(
                f"no config {shown(name)}; shipped are {', '.join(shipped())};"
                " or give the path of a .toml file"
            )
    return parse(_read(path), str(path)), str(path)


def profiles() -> list[str]:
    """Names of the shipped machine profiles."""
    return sorted(path.stem for path in (shipped_folder() / "profiles").glob("*.toml"))


def load_profile(name: str) -> tuple[Config, str]:
    """The machine profile called `name` (a shipped name or a path), and where it came from.

    Raises
    ------
    InputMissing, ConfigError
    """
    path = Path(name)
    if os.sep not in name and not name.endswith(".toml"):
        path = shipped_folder() / "profiles" / f"{name}.toml"
        if name not in profiles():
            raise InputMissing(
                f"no profile {shown(name)}; shipped are {', '.join(profiles())};"
                " or give the path of a .toml file"
            )
    return parse(_read(path), str(path)), str(path)


def parse(text: str, source: str) -> Config:
    """The Config that `text` (TOML) says. Raises ConfigError: file, key, cure."""
    try:
        config = msgspec.convert(tomllib.loads(text), Config)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: not valid TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {_said(str(error))}") from None
    for index, device in enumerate(config.device):
        _check(device, f"{source}: device[{index}]")
    _checked(f"{source}: memory_limit", parse_size, config.memory_limit)
    return config


_INVALID = re.compile(r"(.*?)(?: - at `\$\.(.*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_TABLES: dict[str, type[msgspec.Struct]] = {
    "": Config, "device": DeviceConfig, "arena": ArenaConfig, "queue": QueueConfig,
    "load": LoadConfig, "compute": Cost, "h2d": Cost, "d2h": Cost,
    "host_overhead": Cost,
}  # fmt: skip


def _said(invalid: str) -> str:
    """msgspec's message about a wrong value, with the key as TOML has it and the nearest known."""
    match = _INVALID.fullmatch(invalid)
    what, place = (match[1], match[2] or "") if match else (invalid, "")
    unknown = _UNKNOWN.fullmatch(what)
    if unknown:
        table = re.sub(r"\[\d+\]", "", place).rpartition(".")[2]
        keys = _TABLES[table].__struct_fields__
        what = f"unknown key {shown(unknown[1])}; {_nearest(unknown[1], keys)}"
    else:
        what = what.replace("Object missing required field", "missing key").replace("`", "")
        what = (what[:1].lower() + what[1:]).replace("object", "table")
    return f"{place}: {what}" if place else what


def _nearest(word: str, choices: Sequence[str]) -> str:
    match = difflib.get_close_matches(word, choices, n=1)
    return f"did you mean {match[0]}?" if match else f"there are: {', '.join(choices)}"


def _check(device: DeviceConfig, where: str) -> None:
    kind = configured_kind(device.kind)
    if kind is None:
        nearest = _nearest(device.kind, config_names())
        raise ConfigError(f"{where}.kind: no device kind {shown(device.kind)}; {nearest}")
    _checked(f"{where}.memory", parse_size, device.memory)
    if kind.is_modelled:
        _check_costs(device, where)


def _check_costs(device: DeviceConfig, where: str) -> None:
    if device.compute is None:
        raise ConfigError(f"{where}: an emulated device needs compute = {{ rate = ... }}")
    if (device.h2d is None) != (device.d2h is None):
        raise ConfigError(f"{where}: give both h2d and d2h (a link) or neither (a core)")
    if device.h2d is not None and device.memory is None:
        raise ConfigError(f'{where}: a device with a link needs memory = "64MiB"')
    if device.host_overhead is not None and (device.clock != "virtual" or device.h2d is None):
        raise ConfigError(
            f'{where}.host_overhead: only of a device with a link and clock = "virtual"'
        )
    for name, cost, what in (
        ("compute", device.compute, "flop"),
        ("h2d", device.h2d, "B"),
        ("d2h", device.d2h, "B"),
        ("host_overhead", device.host_overhead, "flop"),
    ):
        if cost is not None:
            check_cost(cost, f"{where}.{name}", what)


def check_cost(cost: Cost, where: str, what: str) -> None:
    """Raises ConfigError unless `cost` has a gap, and a time a unit or a rate in `what`/s."""
    _checked(f"{where}.gap", parse_time, cost.gap)
    if (cost.rate is None) == (cost.unit is None):
        raise ConfigError(f"{where}: give either rate or unit")
    _checked(f"{where}.unit", parse_time, cost.unit)
    rate = _checked(f"{where}.rate", parse_rate, cost.rate)
    if rate is not None and rate[1] != what:
        raise ConfigError(f"{where}.rate: {cost.rate!r} should be in {what}/s")


def _checked(where: str, parse_value: Any, text: str | None) -> Any:
    if text is None:
        return None
    try:
        return parse_value(text)
    except HetschedError as error:
        raise ConfigError(f"{where}: {error}") from None


def _user_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "hetsched" / "config.toml"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise InputMissing(f"config {path}: {error.strerror}") from None
