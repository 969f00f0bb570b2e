"""hetsched: a workstation's CPU cores and its GPU, together on one array job.

The names below are imported when first used, so that a CLI that needs none of them starts fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import lazy_names

if TYPE_CHECKING:
    from hetsched import errors as errors
    from hetsched import fft as fft
    from hetsched import testing as testing
    from hetsched.client.client import Client
    from hetsched.client.job import Job, as_completed
    from hetsched.errors import (
        Cancelled,
        CantCreate,
        ConfigError,
        DataError,
        HetschedError,
        InputMissing,
        InternalError,
        IOFailure,
        JobFailed,
        NotPermitted,
        ProtocolError,
        TryAgain,
        Unavailable,
        UsageError,
        WaitTimeout,
    )
    from hetsched.functions.accelerate import accelerate, load_ipython_extension, restore
    from hetsched.functions.function import namespace
    from hetsched.functions.joblib_backend import register_joblib
    from hetsched.functions.map import divisible, map, reduce
    from hetsched.functions.session import Executor, profile
    from hetsched.local import Local

__version__ = "0.1.0"
__all__ = [
    "Cancelled",
    "CantCreate",
    "Client",
    "ConfigError",
    "DataError",
    "Executor",
    "HetschedError",
    "IOFailure",
    "InputMissing",
    "InternalError",
    "Job",
    "JobFailed",
    "Local",
    "NotPermitted",
    "ProtocolError",
    "TryAgain",
    "Unavailable",
    "UsageError",
    "WaitTimeout",
    "__version__",
    "accelerate",
    "as_completed",
    "divisible",
    "load_ipython_extension",
    "map",
    "namespace",
    "profile",
    "reduce",
    "register_joblib",
    "restore",
    "workloads",
]

__getattr__ = lazy_names(
    __name__,
    {
        "client.client": "Client",
        "client.job": "Job as_completed",
        "errors": (
            "Cancelled CantCreate ConfigError DataError HetschedError IOFailure "
            "InputMissing InternalError JobFailed NotPermitted ProtocolError TryAgain "
            "Unavailable UsageError WaitTimeout"
        ),
        "functions.accelerate": "accelerate load_ipython_extension restore",
        "functions.function": "namespace",
        "functions.joblib_backend": "register_joblib",
        "functions.map": "divisible map reduce",
        "functions.session": "Executor profile",
        "local": "Local",
    },
    modules="errors fft testing",
)


def workloads() -> list[str]:
    """Return the names of the installed workloads."""
    from hetsched.workload import names

    return names()
