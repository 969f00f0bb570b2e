"""Check versions of Python and libraries."""

from __future__ import annotations

import importlib.metadata
import platform

from hetsched.cli.commands.doctor.check_result import CheckResult
from hetsched.errors import InternalError

MIN_LIBZMQ = (4, 3, 5)
"""Older versions are vulnerable to local users and abort the process more often."""
REQUIRED = ("numpy", "scipy", "pyfftw", "pyzmq", "msgspec", "apsw", "typer", "rich",
            "prometheus-client")  # fmt: skip
OPTIONAL = {
    "mkl": "mkl",
    "ducc0": "ducc",
    "cupy": "cuda12",
    "matplotlib": "plot",
}
"""Module or distribution -> the extra that installs it."""


def versions() -> list[CheckResult]:
    """Check Python and the required libraries."""
    results = [CheckResult("python", f"{platform.python_version()} on {platform.machine()}")]
    for name in ("hetsched", *REQUIRED):
        try:
            results.append(CheckResult(name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            text = f"not installed; pip install {name}"
            results.append(CheckResult(name, text, InternalError.code))
    return results


def libzmq() -> list[CheckResult]:
    """Check the version of libzmq."""
    import zmq

    version = zmq.zmq_version_info()
    text = ".".join(map(str, version))
    if version < MIN_LIBZMQ:
        needed = ".".join(map(str, MIN_LIBZMQ))
        return [CheckResult("libzmq", f"{text}; {needed} or newer needed", InternalError.code)]
    return [CheckResult("libzmq", text)]


def extras() -> list[CheckResult]:
    """Report the optional libraries, which make some jobs faster."""
    return [
        CheckResult(name, _version(name) or f"not installed (extra {extra!r}); optional")
        for name, extra in OPTIONAL.items()
    ]


def _version(name: str) -> str | None:
    """Return the installed version; CuPy's distribution isn't named like its module."""
    for distribution in (name, f"{name}-cuda12x", f"{name}-cuda13x"):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
