"""`hetsched serve`, and `service install|uninstall|status`: the daemon as a systemd user service.

The unit files are made for this installation and its environment. State is never removed.
"""

from __future__ import annotations

import faulthandler
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
from hetsched.cli.terminal import answer, note, out, out_lines
from hetsched.errors import CantCreate, ConfigError, Unavailable, UsageError
from hetsched.text import columns
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


def serve(config: ConfigName = None) -> None:
    settings, source = configuration.load(config)
    faulthandler.enable()  # the watchdog's SIGABRT shows where each thread hangs
    from hetsched.daemon import lifecycle

    lifecycle.serve(settings, source=source)


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
    systemctl("show", "--property=Version")  # before anything is written
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
    from hetsched.store.output_files import write_whole

    try:
        if path.exists() and not _is_ours(path):
            raise CantCreate(f"{path}: not written by hetsched; move it away")
        if path.exists() and path.read_text(encoding="utf-8") == text:
            out(f"unchanged {path}")
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(str(path), text.encode(), force=True)
    except OSError as error:
        raise CantCreate(f"{path}: {error.strerror}") from None
    out(f"wrote {path}")
    return True


def uninstall() -> None:
    installed = [path for name in UNITS if (path := _folder() / name).exists()]
    for path in installed:
        if not _is_ours(path):
            raise CantCreate(f"{path}: not written by hetsched; remove it yourself")
    if not installed:
        out("not installed")
        return
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
    systemctl("show", "--property=Version")
    units = {}
    for unit in UNITS:  # those that systemd doesn't know are missing
        output = systemctl("show", unit, f"--property={','.join(PROPERTIES)}").stdout
        units[unit] = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    is_running = units[SERVICE].get("ActiveState") == "active"
    rows = [_row(unit, values) for unit, values in units.items()]
    lines = columns(("unit", "installed", "state", ""), rows, 4)
    if units[SERVICE].get("LoadState") != "loaded":
        lines.append("install it with: hetsched service install")
    answer(json, "service/1", {"running": is_running, "units": units}, lines)
    return 0 if is_running else Unavailable.code


def _row(unit: str, values: dict[str, str]) -> tuple[str, str, str, str]:
    if values.get("LoadState") != "loaded":
        return unit, "no", "-", ""
    state = f"{values.get('ActiveState', '?')} ({values.get('SubState', '?')})"
    details = {"MainPID": "pid {}", "NRestarts": "{} restarts", "StatusText": "{}"}
    known = [(text, values.get(name, "")) for name, text in details.items()]
    said = [text.format(value) for text, value in known if value not in ("", "0")]
    return unit, values.get("UnitFileState") or "yes", state, ", ".join(said)


# ---- systemctl


def systemctl(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run ``systemctl --user WORDS``. Raises Unavailable; if it fails, only with `check`."""
    command = f"systemctl --user {' '.join(words)}"
    try:
        result = subprocess.run(
            ["systemctl", "--user", "--no-pager", *words], check=False, capture_output=True,
            stdin=subprocess.DEVNULL, text=True, errors="replace", timeout=SYSTEMCTL_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command}: no answer for {SYSTEMCTL_SECONDS:g} s") from None
    except OSError as error:
        raise Unavailable(f"systemctl: {error.strerror}; {HINT}") from None
    if check and result.returncode != 0:
        lines = result.stderr.strip().splitlines() or [f"exit status {result.returncode}"]
        hint = f"; {HINT}" if "connect to bus" in result.stderr else ""
        raise Unavailable(f"{command}: {lines[0]}{hint}")
    return result


def _is_active(unit: str) -> bool:
    return systemctl("is-active", "--quiet", unit, check=False).returncode == 0


# ---- the text and the place of the unit files


def _folder() -> Path:
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
    script = Path(sys.executable).parent / "hetsched"
    module = [sys.executable, "-P", "-m", "hetsched.cli.main"]
    words = [*([str(script)] if script.is_file() else module), "serve"]
    if config is not None:
        words += ["--config", _absolute(config)]
    socket = _template(SOCKET)
    if "HETSCHED_RUNTIME_DIR" in variables:
        runtime = _checked(str(paths.runtime_dir())).replace("%", "%%")
        socket = socket.replace(DEFAULT_RUNTIME, runtime)
    return {SOCKET: socket, SERVICE: service_text(_template(SERVICE), words, variables)}


def service_text(template: str, words: Sequence[str], variables: Mapping[str, str]) -> str:
    """Return the service that runs `words` with `variables`."""
    lines = ["ExecStart=" + " ".join(quoted(word).replace("$", "$$") for word in words)]
    lines += [f"Environment={quoted(f'{name}={value}')}" for name, value in variables.items()]
    return re.sub(r"(?m)^ExecStart=.*$", lambda _: "\n".join(lines), template)


def quoted(word: str) -> str:
    """Quote one word of a unit file; specifiers such as %t are escaped."""
    escaped = _checked(word).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return escaped if re.fullmatch(r"[\w%@+=:,./-]+", escaped) else f'"{escaped}"'


def _checked(text: str) -> str:
    if not text.isprintable():
        raise UsageError(f"{text!r}: a unit file can't contain control characters")
    return text


def _is_ours(path: Path) -> bool:
    return path.read_text(encoding="utf-8", errors="replace").startswith(MARK)


def _template(name: str) -> str:
    """Return a shipped unit without its introduction, which is about the file itself."""
    inside = Path(hetsched.__file__).parent / "systemd"
    shipped = inside if inside.is_dir() else inside.parent.parent / "systemd"
    text = (shipped / name).read_text(encoding="utf-8")
    return f"{MARK}\n{text[text.index('[Unit]') :]}"


def _absolute(config: str) -> str:
    """Return a configuration's path as an absolute one; a shipped name stays."""
    is_path = os.sep in config or config.endswith(".toml")
    return str(Path(config).absolute()) if is_path else config


class ServiceCommands(Group):
    noun = "service command"
    members = {
        "install": (install, "Install the daemon as a user service, and start it."),
        "uninstall": (uninstall, "Stop the user service and remove its units."),
        "status": (status, "Show whether the user service is installed and runs."),
    }


service = group(ServiceCommands)
