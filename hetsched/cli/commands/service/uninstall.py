"""`hetsched service uninstall`: stop the service and remove its units. State is kept."""

from __future__ import annotations

from hetsched.cli.commands.service import systemctl, unit_files
from hetsched.cli.output.terminal import clean, out
from hetsched.errors import CantCreate


def command() -> None:
    """Stop the user service and remove its units."""
    files = [unit_files.folder() / name for name in unit_files.UNITS]
    installed = [path for path in files if path.exists()]
    foreign = [path for path in installed if not unit_files.is_ours(path)]
    if foreign:
        raise CantCreate(f"{foreign[0]}: not written by hetsched; remove it yourself")
    if not installed:
        out("not installed")
        return
    systemctl.check_available()
    for path in installed:
        systemctl.run("disable", "--now", path.name)
    for path in installed:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise CantCreate(f"{path}: {error.strerror}") from None
        out(clean(f"removed {path}"))
    systemctl.run("daemon-reload")
