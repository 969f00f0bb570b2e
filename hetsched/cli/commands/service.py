"""`hetsched service install|uninstall|status`: the daemon as a systemd user service.

The unit files are made for this installation and its environment. State is never removed.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import hetsched
from hetsched import config as configuration
from hetsched import paths
from hetsched.cli.app import Group, group
from hetsched.cli.flags import ConfigName, Json, switch
from hetsched.cli.terminal import note, out, out_json, out_lines, out_table
from hetsched.errors import CantCreate, ConfigError, Unavailable, UsageError
from hetsched.transport.sockets import unreachable_reason

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
LINGER = Path("/var/lib/systemd/linger")
"""Has a file for each user whose services run without a login."""
SYSTEMCTL_SECONDS = 180.0  # Time for one command: longer than TimeoutStopSec of the unit
HINT = "`hetsched serve` needs no systemd"
PROPERTIES = (
    "LoadState", "UnitFileState", "ActiveState", "SubState", "MainPID", "NRestarts", "StatusText",
)  # fmt: skip


def install(
    config: ConfigName = None,
    dry_run: Annotated[bool, switch("Show what would be done.", "--dry-run")] = False,
) -> None:
    configuration.load(config)
    texts = unit_texts(config)
    folder = _folder()
    if dry_run:
        for name, text in texts.items():
            out_lines([f"# {folder / name}", *text.splitlines()])
        out(f"# systemctl --user enable --now {' '.join(UNITS)}")
        return
    _check_available()
    was_active = _is_active(SERVICE)
    is_ours = was_active or _is_active(SOCKET)
    if not is_ours and unreachable_reason(paths.session_path()) is None:
        raise ConfigError(
            f"a daemon runs already in {paths.runtime_dir()}, not as a service; stop it first"
        )
    changed = [name for name, text in texts.items() if _write(folder / name, text)]
    systemctl("daemon-reload")
    systemctl("enable", "--now", *UNITS)
    if changed and was_active:
        out("the daemon runs with the earlier unit until: systemctl --user restart hetsched")
    out("the daemon runs as a user service; hetsched service status shows it")
    if not (LINGER / pwd.getpwuid(os.getuid()).pw_name).exists():
        note("it ends when you log out; to keep it running: loginctl enable-linger")


def _write(path: Path, text: str) -> bool:
    """Write a unit file unless it is up to date; return whether it was written."""
    try:
        if path.exists() and not _is_ours(path):
            raise CantCreate(f"{path}: not written by hetsched; move it away")
        if path.exists() and path.read_text(encoding="utf-8") == text:
            out(f"unchanged {path}")
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise CantCreate(f"{path}: {error.strerror}") from None
    out(f"wrote {path}")
    return True


def uninstall() -> None:
    files = [_folder() / name for name in UNITS]
    installed = [path for path in files if path.exists()]
    foreign = [path for path in installed if not _is_ours(path)]
    if foreign:
        raise CantCreate(f"{foreign[0]}: not written by hetsched; remove it yourself")
    if not installed:
        out("not installed")
        return
    _check_available()
    for path in installed:
        systemctl("disable", "--now", path.name)
    for path in installed:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise CantCreate(f"{path}: {error.strerror}") from None
        out(f"removed {path}")
    systemctl("daemon-reload")


def status(json: Json = False) -> int:
    _check_available()
    units = {unit: _properties(unit) for unit in UNITS}
    is_running = units[SERVICE].get("ActiveState") == "active"
    if json:
        out_json({"schema": "hetsched.service/1", "running": is_running, "units": units})
    else:
        rows = [_row(unit, values) for unit, values in units.items()]
        out_table(("unit", "installed", "state", ""), rows, left=4)
        if units[SERVICE].get("LoadState") != "loaded":
            out("install it with: hetsched service install")
    return 0 if is_running else Unavailable.code


def _row(unit: str, values: dict[str, str]) -> tuple[str, str, str, str]:
    if values.get("LoadState") != "loaded":
        return unit, "no", "-", ""
    state = f"{values.get('ActiveState', '?')} ({values.get('SubState', '?')})"
    details = {
        "MainPID": "pid {}", "NRestarts": "{} restarts", "StatusText": "{}",
    }  # fmt: skip
    known = {name: values.get(name, "") for name in details}
    said = [details[name].format(value) for name, value in known.items() if value not in ("", "0")]
    return unit, values.get("UnitFileState") or "yes", state, ", ".join(said)


# ---- systemctl


def _check_available() -> None:
    """Raise Unavailable unless the user has a service manager."""
    systemctl("show", "--property=Version")


def systemctl(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run ``systemctl --user WORDS``.

    Raises Unavailable (there is no systemctl, no service manager of this user, or, if `check`, the
    command failed).
    """
    try:
        result = subprocess.run(
            ["systemctl", "--user", "--no-pager", *words],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SYSTEMCTL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"systemctl --user {' '.join(words)}: no answer for {SYSTEMCTL_SECONDS:g} s"
        ) from None
    except OSError as error:
        raise Unavailable(f"systemctl: {error.strerror}; {HINT}") from None
    if check and result.returncode != 0:
        lines = result.stderr.strip().splitlines() or [f"exit status {result.returncode}"]
        hint = f"; {HINT}" if "connect to bus" in result.stderr else ""
        raise Unavailable(f"systemctl --user {' '.join(words)}: {lines[0]}{hint}")
    return result


def _is_active(unit: str) -> bool:
    return systemctl("is-active", "--quiet", unit, check=False).returncode == 0


def _properties(unit: str) -> dict[str, str]:
    """Return properties of `unit`; those that systemd doesn't know are missing."""
    output = systemctl("show", unit, f"--property={','.join(PROPERTIES)}").stdout
    return dict(line.split("=", 1) for line in output.splitlines() if "=" in line)


# ---- the text and the place of the unit files


def _folder() -> Path:
    """Return the folder of the user's own units."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base).absolute() / "systemd" / "user"


def unit_texts(config: str | None) -> dict[str, str]:
    """Return unit -> its text, for this installation. `config`: a name or a path."""
    variables = {k: v for k, v in sorted(os.environ.items()) if KEPT_VARIABLES.fullmatch(k)}
    for name in FOLDERS:
        if variables.get(name):
            variables[name] = str(Path(variables[name]).absolute())
    if "HETSCHED_CONFIG" in variables:
        variables["HETSCHED_CONFIG"] = _absolute(variables["HETSCHED_CONFIG"])
    words = [*_program(), "serve"]
    if config is not None:
        words += ["--config", _absolute(config)]
    runtime = paths.runtime_dir() if "HETSCHED_RUNTIME_DIR" in variables else None
    return {
        SOCKET: socket_text(_template(SOCKET), runtime),
        SERVICE: service_text(_template(SERVICE), words, variables),
    }


def _program() -> list[str]:
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


def _is_ours(path: Path) -> bool:
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


class ServiceCommands(Group):
    noun = "service command"
    members = {
        "install": (install, "Install the daemon as a user service, and start it."),
        "uninstall": (uninstall, "Stop the user service and remove its units."),
        "status": (status, "Show whether the user service is installed and runs."),
    }


service = group("Run the daemon as a systemd user service.", ServiceCommands)
