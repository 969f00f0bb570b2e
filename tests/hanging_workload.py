"""Workloads whose code hangs in the engine's process until `RELEASED`."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from device_toys import Affine

from hetsched.workload import Variant

BEGUN, RELEASED = threading.Event(), threading.Event()


def hang() -> None:
    BEGUN.set()
    RELEASED.wait()


class HangingInfer(Affine):
    """Hangs when a job is checked."""

    name = "hanging_infer"

    def infer(
        self, explicit: Mapping[str, Any], arrays: Mapping[str, tuple[tuple[int, ...], str]]
    ) -> Any:
        hang()
        return super().infer(explicit, arrays)


class HangingVariants(Affine):
    """Hangs when a job is planned."""

    name = "hanging_variants"

    def variants(self, kind: str) -> Sequence[Variant]:
        hang()
        return super().variants(kind)
