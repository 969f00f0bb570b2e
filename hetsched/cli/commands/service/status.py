"""`hetsched service status`: whether the service is installed and runs."""

from __future__ import annotations

from hetsched.cli.commands.service import systemctl, unit_files
from hetsched.cli.output.terminal import clean, columns, out, out_json
from hetsched.cli.request_flags import Json
from hetsched.errors import Unavailable

SCHEMA = "hetsched.service/1"
PROPERTIES = (
    "LoadState", "UnitFileState", "ActiveState", "SubState", "MainPID", "NRestarts", "StatusText",
)  # fmt: skip


def command(json: Json = False) -> int:
    """Show whether the user service is installed and runs."""
    systemctl.check_available()
    units = {unit: systemctl.properties(unit, PROPERTIES) for unit in unit_files.UNITS}
    is_running = units[unit_files.SERVICE].get("ActiveState") == "active"
    if json:
        out_json({"schema": SCHEMA, "running": is_running, "units": units})
    else:
        rows = [_row(unit, values) for unit, values in units.items()]
        for line in columns(("unit", "installed", "state", ""), rows, left_columns=4):
            out(clean(line))
        if units[unit_files.SERVICE].get("LoadState") != "loaded":
            out("install it with: hetsched service install")
    return 0 if is_running else Unavailable.code


def _row(unit: str, values: dict[str, str]) -> tuple[str, str, str, str]:
    if values.get("LoadState") != "loaded":
        return unit, "no", "-", ""
    state = f"{values.get('ActiveState', '?')} ({values.get('SubState', '?')})"
    details = []
    if values.get("MainPID", "0") != "0":
        details.append(f"pid {values['MainPID']}")
    if values.get("NRestarts", "0") != "0":
        details.append(f"{values['NRestarts']} restarts")
    if values.get("StatusText"):
        details.append(values["StatusText"])
    return unit, values.get("UnitFileState") or "yes", state, ", ".join(details)
