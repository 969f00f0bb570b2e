"""hetsched: a workstation's CPU cores and its GPU, together on one array job.

The names below are imported when first used, so that a CLI that needs none of them starts fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetsched.client.client import Client
    from hetsched.client.job import Job
    from hetsched.local import Local

__version__ = "0.1.0"
__all__ = ["Client", "Job", "Local", "__version__"]

_HOMES = {
    "Client": "hetsched.client.client",
    "Job": "hetsched.client.job",
    "Local": "hetsched.local",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hetsched' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
