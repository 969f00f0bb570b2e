"""`hetsched config`: which configuration is used, and whether it is valid; `completion`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
import typer

from hetsched.cli.app import COMPLETE, Group, group
from hetsched.cli.flags import Json
from hetsched.cli.terminal import out, out_json, out_lines
from hetsched.config import Config, load, shipped

Name = Annotated[
    str | None,
    typer.Argument(metavar="[NAME|FILE]", help="A shipped configuration or a .toml file."),
]


def show(name: Name = None, json: Json = False) -> None:
    config, source = load(name)
    tables = _as_written(config)
    if json:
        out_json({"schema": "hetsched.config/1", "source": source, "config": tables})
    else:
        out(f"# {source}; shipped: {', '.join(shipped())}")
        out_lines(_toml(tables))


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
    names = [process.device.name for process in probe(config).processes]
    out(f"{source}: valid; devices here: {', '.join(names) or 'none'}")


def _as_written(config: Config) -> dict[str, Any]:
    """Return the tables of the file; durations are the only values that msgspec doesn't know."""
    tables: dict[str, Any] = msgspec.to_builtins(config, enc_hook=lambda value: f"{value:g}s")
    return tables


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
        "check": (check, "Check whether a configuration is valid on this machine."),
    }


config = group("Show, locate or check a configuration.", ConfigCommands)


def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"],
        typer.Argument(metavar="bash|zsh|fish", help='For ~/.bashrc: eval "$(hetsched ...)".'),
    ],
) -> None:
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="hetsched", complete_var=COMPLETE, shell=shell)
    out_lines(script.splitlines())
