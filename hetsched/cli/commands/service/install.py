"""`hetsched service install`: write the units of this installation, enable and start them."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Annotated

import typer

from hetsched import config as configuration
from hetsched import paths
from hetsched.cli.commands.service import systemctl, unit_files
from hetsched.cli.output.terminal import clean, note, out
from hetsched.cli.request_flags import ConfigName
from hetsched.errors import CantCreate, ConfigError
from hetsched.transport.sockets import unreachable_reason

LINGER = Path("/var/lib/systemd/linger")
"""Has a file for each user whose services run without a login."""

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done.")]


def command(config: ConfigName = None, dry_run: DryRun = False) -> None:
    """Install the daemon as a user service, and start it."""
    configuration.load(config)
    texts = unit_files.texts(config)
    folder = unit_files.folder()
    if dry_run:
        for name, text in texts.items():
            out(clean(f"# {folder / name}"))
            for line in text.splitlines():
                out(clean(line))
        out(f"# systemctl --user enable --now {' '.join(unit_files.UNITS)}")
        return
    systemctl.check_available()
    was_active = systemctl.is_active(unit_files.SERVICE)
    if not was_active and not systemctl.is_active(unit_files.SOCKET):
        _check_no_daemon()
    changed = [name for name, text in texts.items() if _write(folder / name, text)]
    if changed:
        systemctl.run("daemon-reload")
    systemctl.run("enable", "--now", *unit_files.UNITS)
    if changed and was_active:
        out("the daemon runs with the earlier unit until: systemctl --user restart hetsched")
    out("the daemon runs as a user service; hetsched service status shows it")
    if not (LINGER / pwd.getpwuid(os.getuid()).pw_name).exists():
        note("it ends when you log out; to keep it running: loginctl enable-linger")


def _check_no_daemon() -> None:
    """Raise ConfigError if a daemon runs that the units would take the sockets from."""
    if unreachable_reason(paths.session_path()) is None:
        raise ConfigError(
            f"a daemon runs already in {paths.runtime_dir()}, not as a service; stop it first"
        )


def _write(path: Path, text: str) -> bool:
    """Write a unit file unless it is up to date; return whether it was written."""
    try:
        if path.exists() and not unit_files.is_ours(path):
            raise CantCreate(f"{path}: not written by hetsched; move it away")
        if path.exists() and path.read_text(encoding="utf-8") == text:
            out(clean(f"unchanged {path}"))
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise CantCreate(f"{path}: {error.strerror}") from None
    out(clean(f"wrote {path}"))
    return True
