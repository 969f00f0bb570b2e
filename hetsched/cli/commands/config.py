"""`hetsched config show|path|check`: which configuration is used, and whether it is valid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
import typer.main

from hetsched.cli.app import do_nothing, new
from hetsched.cli.output.terminal import clean, out, out_json
from hetsched.cli.request_flags import Json
from hetsched.config import Config, load, shipped

if TYPE_CHECKING:
    from typer._click import Command

SCHEMA = "hetsched.config/1"

Name = Annotated[
    str | None,
    typer.Argument(metavar="[NAME|FILE]", help="A shipped configuration or a .toml file."),
]


def group() -> Command:
    app = new()
    app.callback(help="Show, locate or check a configuration.")(do_nothing)
    for function in (show, path, check):
        app.command()(function)
    return typer.main.get_command(app)


def show(name: Name = None, json: Json = False) -> None:
    """Print a configuration, with defaults filled in."""
    config, source = load(name)
    if json:
        out_json({"schema": SCHEMA, "source": source, "config": _as_written(config)})
        return
    out(clean(f"# {source}; shipped: {', '.join(shipped())}"))
    for line in _lines(config):
        out(clean(line))


def path(name: Name = None) -> None:
    """Print the path of a configuration."""
    out(clean(load(name)[1]))


def check(name: Name = None) -> None:
    """Check whether a configuration is valid on this machine."""
    from hetsched.devices.probe import probe
    from hetsched.simulate.profile import machine_of

    config, source = load(name)
    if config.load is not None:
        machine_of(config, source)
        out(clean(f"{source}: valid machine profile"))
        return
    names = [process.device.name for process in probe(config).processes]
    out(clean(f"{source}: valid; devices here: {', '.join(names) or 'none'}"))


def _as_written(config: Config) -> dict[str, Any]:
    """Return the tables of the file; durations are the only values that msgspec doesn't know."""
    tables: dict[str, Any] = msgspec.to_builtins(config, enc_hook=lambda value: f"{value:g}s")
    return tables


def _lines(config: Config) -> list[str]:
    """Return one line per table: key = value, values as JSON; unset keys are left out."""
    lines = []
    record = _as_written(config)
    for device in record.pop("device"):
        lines.append(f"device: {_pairs(device)}")
    for key, value in record.items():
        if isinstance(value, dict):
            lines.append(f"{key}: {_pairs(value)}")
        elif value is not None:
            lines.append(f"{key} = {_json(value)}")
    return lines


def _pairs(table: Mapping[str, object]) -> str:
    pairs = [(key, value) for key, value in table.items() if value is not None]
    return "  ".join(f"{key} = {_json(value)}" for key, value in pairs)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
