"""`hetsched config`, `devices` and `completion`: how this machine and the shell are set up."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from hetsched import config as configs
from hetsched.cli import flags
from hetsched.cli.app import COMPLETE, Group, group
from hetsched.cli.flags import ConfigName, Force, Json, argument, option, switch
from hetsched.cli.terminal import answer, note, out, out_lines
from hetsched.config import load, located, shipped
from hetsched.device import configured_kind
from hetsched.errors import Unavailable, UsageError
from hetsched.text import columns, grouped_rows
from hetsched.units import format_bytes

if TYPE_CHECKING:
    from hetsched.transport.messages import DeviceList

Name = Annotated[str | None, argument("[NAME|FILE]", "A shipped configuration or a .toml file.")]


def show(name: Name = None, json: Json = False) -> None:
    config, source = load(name)
    tables: dict[str, Any] = msgspec.to_builtins(config, enc_hook=str)
    tables["device"] = [  # without the keys of other kinds of devices
        {key: table[key] for key in configs.device_keys(kind, config.load is not None)}
        for table in tables["device"]
        if (kind := configured_kind(table["kind"]))
    ]
    lines = [f"# {source}; shipped: {', '.join(shipped())}", *_toml(tables)]
    answer(json, "config/1", {"source": source, "config": tables}, lines)


def path(name: Name = None) -> None:
    out(load(name)[1])


def check(name: Name = None) -> None:
    from hetsched.devices.probe import probe
    from hetsched.simulate.profile import machine_of

    config, source = load(name)
    if config.load is not None:
        machine_of(config, source)
        out(f"{source}: valid machine profile")
        return
    with located(source):
        devices = [process.device for process in probe(config).processes]
    names = ", ".join(each.name for each in devices if not each.members)
    out(f"{source}: valid; devices here: {names or 'none'}")


def init(
    file: Annotated[
        str | None, argument("[FILE]", "Default: the file that is read without --config.")
    ] = None,
    force: Force = False,
) -> None:
    from hetsched.store.output_files import write_whole

    path = configs.user_file() if file is None else Path(file)
    if file is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(str(path), (configs.shipped_folder() / "default.toml").read_bytes(), force)
    note(f"wrote {path}; hetsched config check {path} checks what you change")


def _toml(tables: Mapping[str, Any]) -> list[str]:
    """Return the lines of a TOML file; unset keys are left out."""
    given = {key: value for key, value in tables.items() if value is not None}
    lines = [f"{k} = {_value(v)}" for k, v in given.items() if not isinstance(v, dict | list)]
    for key, value in given.items():
        if isinstance(value, dict | list):
            tables_of = [("[[{}]]", each) for each in value] if isinstance(value, list) else []
            for brackets, table in tables_of or [("[{}]", value)]:
                lines += ["", brackets.format(key)]
                lines += [f"{k} = {_value(v)}" for k, v in table.items() if v is not None]
    return lines


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        pairs = [f"{key} = {_value(each)}" for key, each in value.items() if each is not None]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return msgspec.json.encode(value).decode()  # of text, numbers and booleans the same


class ConfigCommands(Group):
    noun = "config command"
    members = {
        "show": (show, "Print a configuration, with defaults filled in, as TOML."),
        "path": (path, "Print the path of a configuration."),
        "init": (init, "Write a configuration with comments, to be changed."),
        "check": (check, "Check whether a configuration is valid on this machine."),
    }


config = group(ConfigCommands)


def _switch(help: str) -> Any:
    """Declare a flag with names of devices."""
    return option("A,B", f"{help} Until the daemon stops.", flags.words)


def devices(
    config: ConfigName = None,
    probe: Annotated[
        bool, switch("Have the daemon look for missing devices and retry failed ones.", "--probe")
    ] = False,
    enable: Annotated[list[Any] | None, _switch("Let devices take jobs again.")] = None,
    disable: Annotated[list[Any] | None, _switch("Let devices take no more jobs.")] = None,
    json: Json = False,
) -> None:
    changes = {"--probe": probe, "--enable": enable, "--disable": disable}
    flag = next((flag for flag, value in changes.items() if value), "")
    if flag and config is not None:
        raise UsageError(f"{flag} is for the daemon, which has its own configuration: no --config")
    from hetsched.client.control import Control

    source, listed = "daemon", None
    try:
        if config is None:
            with Control() as daemon:
                if enable or disable:
                    listed = daemon.switch_devices(flags.joined(enable), flags.joined(disable))
                if listed is None or probe:
                    listed = daemon.device_list(probe=probe)
    except Unavailable:
        if flag:
            raise
    if listed is None:
        source, listed = _configured(config)
    shown = [info for info in listed.devices if not info.members]  # teams show where they work
    rows = []
    for label, members in grouped_rows(shown, lambda info: info.name):
        first = members[0]
        cores = sorted({core for member in members for core in member.cores})
        memory = "-" if first.memory is None else format_bytes(first.memory)
        nodes = sorted({m.numa_node for m in members if m.numa_node is not None})
        rows.append((label, first.kind, first.identity, memory, _ranges(cores), _ranges(nodes)))
    lines = columns(("device", "kind", "description", "memory", "cores", "nodes"), rows, 3)
    lines += [f"{name}: not available: {reason}" for name, reason in listed.absent.items()]
    lines += [f"{name}: {reason}" for name, reason in listed.restricted.items()]
    record = {name: getattr(listed, name) for name in ("devices", "absent", "restricted")}
    answer(json, "devices/1", {"config": source, **record}, lines)


def _configured(config: str | None) -> tuple[str, DeviceList]:
    from hetsched.devices.probe import probe
    from hetsched.transport.messages import DeviceList

    settings, source = load(config)
    with located(source):
        machine = probe(settings)
    return source, DeviceList(tuple(p.device for p in machine.processes), machine.absent, {})


def _ranges(numbers: list[int]) -> str:
    """Format [0, 1, 2, 5] as "0-2,5"."""
    runs = [list(run) for _, run in itertools.groupby(numbers, lambda n: n - numbers.index(n))]
    return ",".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs) or "-"


def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"],
        argument("bash|zsh|fish", 'For ~/.bashrc: eval "$(hetsched ...)".'),
    ],
) -> None:
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="hetsched", complete_var=COMPLETE, shell=shell)
    out_lines(script.splitlines())
