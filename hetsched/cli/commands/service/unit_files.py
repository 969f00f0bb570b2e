"""The text and the place of the unit files, for this installation and its environment."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import hetsched
from hetsched import paths
from hetsched.errors import UsageError

SERVICE, SOCKET = "hetsched.service", "hetsched.socket"
UNITS = (SOCKET, SERVICE)
"""In the order in which they are stopped: a client must not start the service again."""
MARK = "# Written by `hetsched service install`, which replaces it."
"""First line of files that may be replaced and removed."""
KEPT_VARIABLES = re.compile(
    r"HETSCHED_\w+|XDG_(STATE|CACHE|CONFIG)_HOME|CUDA_(PATH|VISIBLE_DEVICES)|LD_LIBRARY_PATH"
)
"""Variables that the service shares with the shell that installs it."""
FOLDERS = ("HETSCHED_RUNTIME_DIR", "HETSCHED_STATE_DIR")
DEFAULT_RUNTIME = "%t/hetsched"


def folder() -> Path:
    """Return the folder of the user's own units."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base).absolute() / "systemd" / "user"


def texts(config: str | None) -> dict[str, str]:
    """Return unit -> its text, for this installation. `config`: a name or a path."""
    variables = {k: v for k, v in sorted(os.environ.items()) if KEPT_VARIABLES.fullmatch(k)}
    for name in FOLDERS:
        if variables.get(name):
            variables[name] = str(Path(variables[name]).absolute())
    if "HETSCHED_CONFIG" in variables:
        variables["HETSCHED_CONFIG"] = _absolute(variables["HETSCHED_CONFIG"])
    words = [*program(), "serve"]
    if config is not None:
        words += ["--config", _absolute(config)]
    runtime = paths.runtime_dir() if "HETSCHED_RUNTIME_DIR" in variables else None
    return {
        SOCKET: socket_text(_template(SOCKET), runtime),
        SERVICE: service_text(_template(SERVICE), words, variables),
    }


def program() -> list[str]:
    """Return the command of this installation."""
    script = Path(sys.executable).parent / "hetsched"
    if script.is_file():
        return [str(script)]
    return [sys.executable, "-P", "-m", "hetsched.cli.main"]


def service_text(template: str, words: Sequence[str], variables: Mapping[str, str]) -> str:
    """Return the service that runs `words` with `variables`."""
    lines = ["ExecStart=" + " ".join(quoted(word).replace("$", "$$") for word in words)]
    lines += [f"Environment={quoted(f'{name}={value}')}" for name, value in variables.items()]
    return MARK + "\n" + _body(re.sub(r"(?m)^ExecStart=.*$", lambda _: "\n".join(lines), template))


def socket_text(template: str, runtime: Path | None) -> str:
    """Return the sockets in the folder `runtime`; None: where systemd has the user's own."""
    if runtime is not None:
        template = template.replace(DEFAULT_RUNTIME, _checked(str(runtime)).replace("%", "%%"))
    return MARK + "\n" + _body(template)


def quoted(word: str) -> str:
    """Quote one word of a unit file; specifiers such as %t are escaped."""
    escaped = _checked(word).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return escaped if re.fullmatch(r"[\w%@+=:,./-]+", escaped) else f'"{escaped}"'


def is_ours(path: Path) -> bool:
    """Return whether `hetsched service install` has written the file."""
    return path.read_text(encoding="utf-8", errors="replace").startswith(MARK)


def _template(name: str) -> str:
    inside = Path(hetsched.__file__).parent / "systemd"
    shipped = inside if inside.is_dir() else inside.parent.parent / "systemd"
    return (shipped / name).read_text(encoding="utf-8")


def _body(template: str) -> str:
    """Return the template without its introduction, which is about the file in the repository."""
    return template[template.index("[Unit]") :]


def _absolute(config: str) -> str:
    """Return a configuration's path as an absolute one; a shipped name stays."""
    is_path = os.sep in config or config.endswith(".toml")
    return str(Path(config).absolute()) if is_path else config


def _checked(text: str) -> str:
    if not text.isprintable():
        raise UsageError(f"{text!r}: a unit file can't contain control characters")
    return text
