"""`hetsched doctor`: check everything that a job needs. No daemon needed."""

from __future__ import annotations

from collections.abc import Callable

from hetsched.cli.commands.doctor import (
    daemon_checks,
    hetsched_checks,
    limit_checks,
    machine_checks,
    software_checks,
)
from hetsched.cli.commands.doctor.check_result import CheckResult
from hetsched.cli.output.terminal import clean, columns, out, out_json
from hetsched.cli.request_flags import ConfigName, Json
from hetsched.errors import HetschedError, InternalError

SCHEMA = "hetsched.doctor/1"

Check = Callable[[], list[CheckResult]]


def doctor(config: ConfigName = None, json: Json = False) -> int:
    """Check everything that jobs need on this machine."""
    results = [result for name, check in _checks(config).items() for result in _run(name, check)]
    code = next((result.code for result in results if result.code), 0)
    if json:
        out_json({"schema": SCHEMA, "code": code, "findings": results})
        return code
    rows = [(result.mark, result.what, result.found) for result in results]
    for line in columns(("", "check", "result"), rows, left_columns=3):
        out(clean(line))
    return code


def _checks(config: str | None) -> dict[str, Check]:
    """Return the checks; the name labels the row if the check itself fails."""
    return {
        "versions": software_checks.versions,
        "libzmq": software_checks.libzmq,
        "extras": software_checks.extras,
        "cores": machine_checks.cores,
        "memory": machine_checks.memory,
        "limits": limit_checks.limits,
        "folders": machine_checks.folders,
        "models": hetsched_checks.models,
        "journal": daemon_checks.journal,
        "config": lambda: hetsched_checks.configuration(config),
        "devices": lambda: hetsched_checks.devices(config),
        "daemon": daemon_checks.daemon,
    }


def _run(name: str, check: Check) -> list[CheckResult]:
    """Run one check; an exception is reported as a problem."""
    try:
        return check()
    except HetschedError as error:
        return [CheckResult(name, str(error), error.code)]
    except Exception as error:
        return [CheckResult(name, f"{type(error).__name__}: {error}", InternalError.code)]
