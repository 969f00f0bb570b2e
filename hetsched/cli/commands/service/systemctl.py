"""`systemctl --user`, and clear errors where there is none."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from hetsched.cli.output.terminal import clean
from hetsched.errors import Unavailable

SECONDS = 180.0
"""Time for one command: longer than TimeoutStopSec of the unit."""
HINT = "`hetsched serve` needs no systemd"


def check_available() -> None:
    """Raise Unavailable unless the user has a service manager."""
    run("show", "--property=Version")


def run(*words: str) -> str:
    """Run ``systemctl --user WORDS`` and return its output.

    Raises
    ------
    Unavailable
        There is no systemctl, no service manager of this user, or the command failed.
    """
    result = _run(words)
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or [f"exit status {result.returncode}"]
        hint = f"; {HINT}" if "connect to bus" in result.stderr else ""
        raise Unavailable(clean(f"systemctl --user {' '.join(words)}: {lines[0]}{hint}"))
    return result.stdout


def is_active(unit: str) -> bool:
    return _run(("is-active", "--quiet", unit)).returncode == 0


def properties(unit: str, names: Sequence[str]) -> dict[str, str]:
    """Return properties of `unit`; those that systemd doesn't know are missing."""
    output = run("show", unit, f"--property={','.join(names)}")
    return dict(line.split("=", 1) for line in output.splitlines() if "=" in line)


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = ["systemctl", "--user", "--no-pager", *words]
    try:
        return subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"systemctl --user {' '.join(words)}: no answer for {SECONDS:g} s"
        ) from None
    except OSError as error:
        raise Unavailable(f"systemctl: {error.strerror}; {HINT}") from None
