"""A workload of the scenarios: an FFT whose declaration hangs in the daemon."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from hetsched_workloads.fft.declaration import Fft


class HangingFft(Fft):
    """Never answers when a job is checked."""

    name = "hanging_fft"

    def infer(
        self, explicit: Mapping[str, Any], arrays: Mapping[str, tuple[tuple[int, ...], str]]
    ) -> Any:
        threading.Event().wait()
        return super().infer(explicit, arrays)
