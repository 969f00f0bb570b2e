"""The configuration: TOML files, found by name or path, read into validated records.

The first of these is used: the ``--config`` flag, HETSCHED_CONFIG,
``$XDG_CONFIG_HOME/hetsched/config.toml``, the shipped ``default``. Machine profiles have the same
schema and a ``[load]`` table. `docs/configuration.md` explains every key.
"""

from __future__ import annotations

import itertools
import os
import re
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import msgspec

from hetsched.device import DEVICE_KINDS, DeviceKind, configured_kind
from hetsched.errors import ConfigError, HetschedError, InputMissing, UsageError
from hetsched.machine_limits import resolve_size
from hetsched.units import closest_hint, format_bytes, parse_rate, parse_size, parse_time, quoted

Value = TypeVar("Value")
Fraction = Annotated[float, msgspec.Meta(gt=0, le=1)]

STOP_PARTS = 12
"""A device has this part of the whole stop: 5 s of a minute."""
NO_GAP = "0us"


class Seconds(float):
    """A duration, "30s" in the file."""

    def __str__(self) -> str:
        return f"{float(self):.9g}s"


class Deadline(Seconds):
    """A duration above 0."""


class Size(int):
    """A number of bytes, "64MiB" in the file."""

    def __str__(self) -> str:
        text = format_bytes(self)
        return text if parse_size(text) == self else f"{int(self)} B"


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cost of one operation: a fixed `gap`, and a `rate` (B/s, flop/s) or a time per `unit`.

    Or a table, `points`: units and time. Linear in between; constant speed outside.
    """

    gap: str = NO_GAP
    rate: str | None = None
    unit: str | None = None
    points: tuple[tuple[float, str], ...] | None = None

    def gap_seconds(self) -> float:
        return parse_time(self.gap)

    def table(self) -> list[tuple[float, float]] | None:
        """Return (units, seconds) of the points; None without a table."""
        if self.points is None:
            return None
        return [(units, parse_time(time)) for units, time in self.points]

    def seconds(self, units: int, bytes_per_unit: float, flops_per_unit: float) -> float:
        """Modelled seconds of one operation on `units`."""
        if (table := self.table()) is not None:
            after = bisect_right([x for x, _ in table], units)
            if after in (0, len(table)):
                nearest, seconds = table[0 if after == 0 else -1]
                return seconds * units / nearest
            (x, start), (next_x, end) = table[after - 1], table[after]
            return start + (end - start) * (units - x) / (next_x - x)
        if self.unit is not None:
            return self.gap_seconds() + units * parse_time(self.unit)
        rate, quantity = parse_rate(self.rate or "")
        amount = bytes_per_unit if quantity == "B" else flops_per_unit
        return self.gap_seconds() + units * amount / rate


class DeviceConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``[[device]]`` table."""

    kind: str
    name: str | None = None
    count: Annotated[int, msgspec.Meta(ge=1)] | None = None
    optional: bool = False
    team: bool = True
    hardware_threads: bool = False
    clock: Literal["real", "virtual"] = "real"
    core: int | None = None
    memory: str | None = None
    on_cpu: bool = False
    host_memory: bool | None = None
    engines: Literal[0, 1, 2] = 2
    duplex: tuple[Fraction, Fraction] = (1.0, 1.0)
    compute: Cost | None = None
    h2d: Cost | None = None
    d2h: Cost | None = None
    seed: int = 0
    stalls: float = 0.0

    @property
    def link(self) -> bool:
        return self.h2d is not None

    def memory_bytes(self) -> int | None:
        return None if self.memory is None else parse_size(self.memory)


class ArenaConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shared memory: bytes, or a percentage of the machine's memory."""

    limit: str = "70%"
    results: str = "25%"
    results_for: Seconds = Seconds(600)
    warm_for: Seconds = Seconds(60)


class QueueConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Quotas; beyond them requests are refused (75)."""

    limit: Annotated[int, msgspec.Meta(ge=1)] = 1000
    per_client: Annotated[int, msgspec.Meta(ge=1)] | None = None
    parameters: Size = Size(16 << 20)
    followers: Annotated[int, msgspec.Meta(ge=1)] = 1000
    small_jobs: bool = True


class DeadlinesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long to wait for device processes, files and plug-ins.

    A device process that misses a deadline is killed, and its chunks run elsewhere; a thread that
    does is given up and replaced, and its job fails.
    """

    start: Deadline = Deadline(30)
    step: Deadline = Deadline(1800)
    chunk: Deadline = Deadline(30)
    chunk_factor: Annotated[float, msgspec.Meta(ge=1)] = 10.0
    stop: Deadline = Deadline(60)
    disk: Deadline = Deadline(30)

    @property
    def device_stop(self) -> float:
        """Seconds for the devices of a cancelled job to stop, for a process that should end, and
        then for a killed one to be gone."""
        return self.stop / STOP_PARTS

    @property
    def last_iteration(self) -> float:
        """Seconds for the last iteration of a job whose state is saved in an orderly stop."""
        return self.stop / 2  # the rest is for writing


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory and disk for what accumulates."""

    unread: Size = Size(8 << 20)
    ended_jobs: Size = Size(32 << 20)
    models: Size = Size(64 << 20)


class JournalConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ended jobs for `hetsched history`. Jobs that haven't ended are never removed."""

    keep: Seconds = Seconds(30 * 86400)
    keep_jobs: Annotated[int, msgspec.Meta(ge=0)] = 10_000
    limit: Size = Size(64 << 20)


class LoadConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The load of a machine profile: units, and bytes per unit in each direction."""

    units: Annotated[int, msgspec.Meta(ge=1)]
    input_bytes: Annotated[int, msgspec.Meta(ge=0)]
    output_bytes: Annotated[int, msgspec.Meta(ge=0)]


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    device: tuple[DeviceConfig, ...] = (
        DeviceConfig(kind="cpu"),
        DeviceConfig(kind="gpu", optional=True),
    )
    memory_limit: Size | None = None
    stealing: bool = True
    """A device that runs out of chunks takes some from the one expected to finish last."""
    arena: ArenaConfig = ArenaConfig()
    queue: QueueConfig = QueueConfig()
    deadlines: DeadlinesConfig = DeadlinesConfig()
    limits: LimitsConfig = LimitsConfig()
    journal: JournalConfig = JournalConfig()
    load: LoadConfig | None = None


def shipped_folder() -> Path:
    """Return the folder of the shipped configs: in the package or at the project's top."""
    package = Path(__file__).parent
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def shipped() -> list[str]:
    """Return the names of the shipped configurations."""
    return sorted(path.stem for path in shipped_folder().glob("*.toml"))


def load(name: str | None = None) -> tuple[Config, str]:
    """Load the configuration `name`, a shipped name or a path; return it and its file's path.

    Raises InputMissing, ConfigError.
    """
    name = name or os.environ.get("HETSCHED_CONFIG") or None
    if name is None:
        path = user_file()
        if not path.is_file():
            path = shipped_folder() / "default.toml"
    else:
        path = _path_of(name, "config", shipped_folder(), shipped())
    return parse(_read(path), str(path)), str(path)


def profiles() -> list[str]:
    """Return the names of the shipped machine profiles."""
    return sorted(path.stem for path in (shipped_folder() / "profiles").glob("*.toml"))


def load_profile(name: str) -> tuple[Config, str]:
    """Load the machine profile `name` as `load` does a configuration."""
    path = _path_of(name, "profile", shipped_folder() / "profiles", profiles())
    return parse(_read(path), str(path)), str(path)


def _path_of(name: str, kind: str, folder: Path, shipped_names: list[str]) -> Path:
    """Return the file of a shipped name or a path. Raises InputMissing."""
    if os.sep in name or name.endswith(".toml"):
        return Path(name)
    if name not in shipped_names:
        raise InputMissing(
            f"no {kind} {quoted(name)}; shipped are {', '.join(shipped_names)};"
            " or give the path of a .toml file"
        )
    return folder / f"{name}.toml"


def parse(text: str, source: str) -> Config:
    """Parse and check `text` (TOML). Raises ConfigError with `source`, the key and the reason."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: not valid TOML: {error}") from None
    tables = raw.get("device")
    for index, table in enumerate(tables if isinstance(tables, list) else ()):
        _check_keys(table, f"{source}: device[{index}]", is_profile="load" in raw)
    try:
        config = msgspec.convert(raw, Config, dec_hook=_quantity)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {_rephrased(str(error), raw)}") from None
    for index, device in enumerate(config.device):
        _check_device(device, f"{source}: device[{index}]")
    for key in ("limit", "results"):
        resolve_size(getattr(config.arena, key), 1, f"{source}: arena.{key}")
    return config


_INVALID = re.compile(r"(.*?)(?: - at `\$\.(.*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_TYPES = {
    "int": "an integer", "float": "a number", "str": "a string", "bool": "true or false",
    "object": "a table", "array": "an array",
}  # fmt: skip
"""JSON's word, as msgspec has it -> TOML's."""
_TABLES: dict[str, type[msgspec.Struct]] = {
    "": Config,
    "device": DeviceConfig,
    "arena": ArenaConfig,
    "queue": QueueConfig,
    "deadlines": DeadlinesConfig,
    "limits": LimitsConfig,
    "journal": JournalConfig,
    "load": LoadConfig,
    "compute": Cost,
    "h2d": Cost,
    "d2h": Cost,
}


def _rephrased(invalid: str, raw: Any) -> str:
    """Return msgspec's message about a wrong value of `raw` in TOML's terms, with the value."""
    match = _INVALID.fullmatch(invalid)
    problem, key = (match[1], match[2] or "") if match else (invalid, "")
    path, _, name = re.sub(r"\[\d+\]", "", key).rpartition(".")
    unknown = _UNKNOWN.fullmatch(problem)
    if unknown:
        keys = _TABLES[name].__struct_fields__
        problem = f"unknown key {quoted(unknown[1])}{closest_hint(unknown[1], keys)}"
    elif problem.startswith("Invalid enum value"):
        values = list(map(str, get_args(get_type_hints(_TABLES[path])[name])))
        found = _value_at(raw, key)
        problem = f"unknown value {quoted(found)}{closest_hint(found, values)}"
    elif problem.startswith("Object missing"):
        problem = problem.replace("Object missing required field", "missing key").replace("`", "")
    elif key == "device" and isinstance(raw["device"], dict):
        problem = "there may be several of them: write [[device]] instead of [device]"
    elif problem.startswith("Expected"):
        wanted = problem.removeprefix("Expected ").partition(", got")[0]
        wanted = wanted.replace(" | null", "").replace(" | ", "` or `")  # int | null: an integer
        names = re.sub(r"`(\w+)`", lambda found: _TYPES.get(found[1], found[1]), wanted)
        problem = f"expected {names}, got {quoted(_value_at(raw, key))}"
    return f"{key}: {problem}" if key else problem


def _value_at(raw: Any, key: str) -> Any:
    for name, index in re.findall(r"([\w-]+)|\[(\d+)\]", key):
        raw = raw[name or int(index)]
    return raw


def _quantity(kind: Any, value: object) -> Any:
    """Return the value of a type that msgspec doesn't know."""
    if not isinstance(value, str):
        raise ValueError(f"{quoted(value)} should be a string such as '30s' or '64MiB'")
    try:
        if kind is Size:
            return Size(parse_size(value))
        seconds = parse_time(value)
    except UsageError as error:
        raise ValueError(str(error)) from None
    if kind is Deadline and not seconds:
        raise ValueError(f"{value!r} should be above 0")
    return kind(seconds)


def user_file() -> Path:
    """Return the path of the file that is read if no other configuration is named."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "hetsched" / "config.toml"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise InputMissing(f"config {path}: {error.strerror}") from None


# ---- checks


@contextmanager
def located(source: str) -> Iterator[None]:
    """Name the file, if there is one, in errors that are seen only when devices are looked for."""
    try:
        yield
    except ConfigError as error:
        if not source or not str(error).startswith("device"):
            raise
        raise ConfigError(f"{source}: {error}") from None


COMMON_KEYS = ("kind", "name", "count", "optional")
MODELLED_KEYS = (
    "clock", "core", "memory", "engines", "duplex", "compute", "h2d", "d2h",
    "seed", "stalls",
)  # fmt: skip
"""Keys of devices whose operations cost what the configuration says, as all of a profile do."""


def device_keys(kind: DeviceKind, is_profile: bool) -> list[str]:
    """Return the keys of a ``[[device]]`` table of `kind`, in a machine profile or elsewhere."""
    modelled = MODELLED_KEYS if kind.is_modelled or is_profile else ()
    return list(dict.fromkeys((*COMMON_KEYS, *kind.own_keys, *modelled)))


def _check_keys(table: Any, location: str, is_profile: bool) -> None:
    kind = configured_kind(str(table.get("kind"))) if isinstance(table, dict) else None
    if kind is None:
        return  # reported with the value
    own = device_keys(kind, is_profile)
    for key in table:
        if key not in own:
            hint = closest_hint(key, own)
            if key == "cores" and kind.is_core and "core" not in own:
                hint = "; count says how many"
            elif key in MODELLED_KEYS:
                hint = "; a machine profile, with a [load], has it"
            raise ConfigError(f"{location}.{key}: not a key of kind {kind.config_name!r}{hint}")


def _check_device(device: DeviceConfig, location: str) -> None:
    kind = configured_kind(device.kind)
    if kind is None:
        names = [each.config_name for each in DEVICE_KINDS.values()]
        hint = closest_hint(device.kind, names)
        raise ConfigError(f"{location}.kind: no device kind {quoted(device.kind)}{hint}")
    _parsed(f"{location}.memory", parse_size, device.memory)
    if kind.is_modelled:
        check_costs(device, location)


def check_costs(device: DeviceConfig, location: str) -> None:
    """Check the costs of a modelled device. Raises ConfigError; `location`: file and key."""
    if device.compute is None:
        raise ConfigError(f'{location}: a modelled device needs compute = {{ unit = "2ms" }}')
    if (device.h2d is None) != (device.d2h is None):
        raise ConfigError(f"{location}: give both h2d and d2h (a link) or neither (a core)")
    if device.link and device.memory is None:
        raise ConfigError(f'{location}: a device with a link needs memory = "64MiB"')
    for name in ("compute", "h2d", "d2h"):
        cost = getattr(device, name)
        if cost is not None:
            _check_cost(cost, f"{location}.{name}", "B" if name in ("h2d", "d2h") else "flop")


def _check_cost(cost: Cost, location: str, quantity: str) -> None:
    """Check that `cost` has exactly one of `rate` (of `quantity`, B or flop), `unit`, `points`."""
    _parsed(f"{location}.gap", parse_time, cost.gap)
    if cost.points is not None:
        _check_points(cost, f"{location}.points")
        return
    if (cost.rate is None) == (cost.unit is None):
        raise ConfigError(f"{location}: give either rate or unit, or a table of points")
    _parsed(f"{location}.unit", parse_time, cost.unit)
    rate = _parsed(f"{location}.rate", parse_rate, cost.rate)
    if rate is not None and rate[1] != quantity:
        raise ConfigError(f"{location}.rate: {cost.rate!r}, must be in {quantity}/s")


def _check_points(cost: Cost, location: str) -> None:
    if (cost.gap, cost.rate, cost.unit) != (NO_GAP, None, None):
        raise ConfigError(f"{location}: a table replaces gap, rate and unit; drop these")
    if not cost.points:
        raise ConfigError(f'{location}: empty; give points like [[1, "100us"], [16, "1.6ms"]]')
    for index, (units, time) in enumerate(cost.points):
        point = f"{location}[{index}]"
        if not 0 < units < float("inf"):
            raise ConfigError(f"{point}: {units:g} units, must be above 0")
        if not _parsed(point, parse_time, time):
            raise ConfigError(f"{point}: {time!r}, must be above 0")
    for (units, _), (following, _) in itertools.pairwise(cost.points):
        if following <= units:
            raise ConfigError(
                f"{location}: {following:g} units after {units:g}; sort them, each size once"
            )


def _parsed(location: str, parse_value: Callable[[str], Value], text: str | None) -> Value | None:
    """Return the value of `text`; None for None. Raises ConfigError if it is malformed."""
    if text is None:
        return None
    try:
        return parse_value(text)
    except HetschedError as error:
        raise ConfigError(f"{location}: {error}") from None
