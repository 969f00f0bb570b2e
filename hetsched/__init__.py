"""hetsched: a workstation's CPU cores and its GPU, together on one array job.

The names below are imported when first used, so that a CLI that needs none of them starts fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import lazy_names

if TYPE_CHECKING:
    from hetsched.client.client import Client
    from hetsched.client.job import Job
    from hetsched.local import Local

__version__ = "0.1.0"
__all__ = ["Client", "Job", "Local", "__version__"]

__getattr__ = lazy_names(
    __name__, {"Client": "client.client", "Job": "client.job", "Local": "local"}
)
