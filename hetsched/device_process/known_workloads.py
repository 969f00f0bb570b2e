"""The workloads of recent jobs of one device, with what follows from their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hetsched.bounded_cache import BoundedCache
from hetsched.memory import MemoryDemand
from hetsched.workload import ArraySpec, BaseWorkload, find
from hetsched.workload.conversion import decode_params

MAX_WORKLOADS = 16
"""Largest number of cached workloads with parameters, as of a core's kernels. Arbitrary."""


@dataclass(frozen=True)
class KnownWorkload:
    """A workload with its parameters, its arrays and its demand, monotone, on this device."""

    workload: BaseWorkload
    params: Any
    specs: Sequence[ArraySpec]
    demand: MemoryDemand


class KnownWorkloads:
    """Workloads by reference and encoded parameters. Belongs to one thread.

    Parameters
    ----------
    kind : str
        Of the device, whose memory is meant.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._known: BoundedCache[tuple[str, bytes], KnownWorkload] = BoundedCache(
            max_entries=MAX_WORKLOADS
        )

    def get(self, reference: str, encoded: bytes) -> KnownWorkload:
        """Return the workload `reference` with the parameters `encoded` as JSON.

        Raises
        ------
        UsageError
            There is no such workload.
        msgspec.MsgspecError
            It has other parameters.
        """
        return self._known.get_or_compute(
            (reference, encoded), lambda: self._describe(reference, encoded)
        )

    def _describe(self, reference: str, encoded: bytes) -> KnownWorkload:
        workload = find(reference)
        params = decode_params(workload, encoded)
        demand = workload.demand(params, self._kind).monotone()
        return KnownWorkload(workload, params, workload.arrays(params), demand)
