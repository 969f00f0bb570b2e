"""`hetsched config show|path|check`: which configuration counts, and whether it is right."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer
import typer.main

from hetsched.cli.app import new
from hetsched.cli.output.terminal import clean, out, out_json
from hetsched.cli.request_flags import Json
from hetsched.config import Config, load, shipped

Name = Annotated[
    str | None,
    typer.Argument(metavar="[NAME|FILE]", help="A shipped configuration or a .toml file."),
]


def group() -> Any:
    app = new()
    app.callback(help="Show which configuration counts, or check one.")(_nothing)
    for function in (show, path, check):
        app.command()(function)
    return typer.main.get_command(app)


def _nothing() -> None:
    """Typer makes a group only where there is a callback."""


def show(name: Name = None, json: Json = False) -> None:
    """Print what a configuration says, defaults filled in."""
    config, source = load(name)
    record = msgspec.to_builtins(config)
    if json:
        out_json({"schema": "hetsched.config/1", "source": source, "config": record})
        return
    out(clean(f"# {source}; shipped: {', '.join(shipped())}"))
    for line in _lines(config):
        out(clean(line))


def path(name: Name = None) -> None:
    """Print where a configuration comes from."""
    out(clean(load(name)[1]))


def check(name: Name = None) -> None:
    """Say whether a configuration is right for this machine (0) or what is wrong with it (78)."""
    from hetsched.devices.probe import probe
    from hetsched.simulate.profile import machine_of

    config, source = load(name)
    if config.load is not None:
        machine_of(config, source)
        out(clean(f"{source}: right, the profile of a machine"))
        return
    names = [info.name for process in probe(config).processes for info in process.devices]
    out(clean(f"{source}: right; here it means {', '.join(names) or 'no device'}"))


def _lines(config: Config) -> list[str]:
    """One line a table: key = value, as JSON writes values; what isn't set is left out."""
    lines = []
    record = msgspec.to_builtins(config)
    for device in record.pop("device"):
        lines.append(f"device: {_pairs(device)}")
    for key, value in record.items():
        if value is not None:
            table = isinstance(value, dict)
            lines.append(f"{key}: {_pairs(value)}" if table else f"{key} = {_json(value)}")
    return lines


def _pairs(table: dict[str, Any]) -> str:
    pairs = [(key, value) for key, value in table.items() if value is not None]
    return "  ".join(f"{key} = {_json(value)}" for key, value in pairs)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
