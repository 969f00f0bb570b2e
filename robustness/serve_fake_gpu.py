"""`hetsched serve` on a machine whose only GPU is the fake one of `tests/devices`.

Its device is the real one, with rows that only its own memory has, and computes by the variants
of cores.
"""

from __future__ import annotations

import sys

import msgspec

from hetsched.cli.main import main
from hetsched.device_kinds import DEVICE_KINDS

DEVICE_KINDS["cuda"] = msgspec.structs.replace(
    DEVICE_KINDS["cuda"], package="fake_gpu", variant_kind="cpu"
)

if __name__ == "__main__":
    sys.exit(main())
