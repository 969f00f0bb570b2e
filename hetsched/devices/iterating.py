"""How a device computes the stages of an iterative job: the seam between the runner of iterations
and the kinds of devices.

The runner (`device_process.epochs`) keeps step with other devices and combines reductions; an
executor calls kernels on the device's own rows and says how long that took on the device's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from hetsched.devices.base import DeviceJob
from hetsched.iterations.home import Home, Part
from hetsched.workload import Iterative, Rows, Stage, Values


class StageSeconds(NamedTuple):
    """Seconds of one stage on the device's clock."""

    compute: float
    transfer: float = 0.0


@dataclass(frozen=True)
class IterativeJob:
    """The description of an iterative job that a device receives.

    Attributes
    ----------
    job : DeviceJob
        `chunk` is the load.
    home : Home
        The arrays, in memory that all devices share.
    """

    job: DeviceJob
    home: Home

    @property
    def workload(self) -> Iterative:
        workload = self.job.workload
        assert isinstance(workload, Iterative)
        return workload

    @property
    def load(self) -> int:
        return self.job.chunk


class StageExecutor(Protocol):
    """Computes stages on one device. Driven by one thread.

    Its rows are in the home arrays after each iteration, unless it has been asked to defer that.
    """

    is_virtual: bool
    """Times are computed: waiting and combining take none."""
    has_own_core: bool
    """The device may look for other devices for a moment before it sleeps."""
    has_own_memory: bool
    """Storing its rows in the home arrays takes time, and may be deferred."""

    def begin(self) -> None:
        """Begin an epoch: what is in the home arrays is valid, and nothing is deferred."""

    def defer(self) -> None:
        """Store all rows in the home arrays only on `write_back`, until the next `begin`.

        What other devices read is still there after each stage.
        """

    def adopt(self, rows: Rows, iteration: int) -> float:
        """Take over `rows` for the time after `iteration`; return seconds of copies.

        The rows before are in the home arrays when this returns. Rows may be none.
        """

    def compute(
        self,
        part: Part,
        stage: Stage,
        iteration: int,
        values: Values,
        partials: Mapping[str, Any],
    ) -> StageSeconds:
        """Compute a stage on the device's rows, of which it has some.

        When this returns, what other devices read of the results is in the home arrays. Raises
        whatever the kernel raises.
        """

    def write_back(self, iteration: int) -> float:
        """Have all results after `iteration` in the home arrays; return seconds of copies."""


@runtime_checkable
class IteratingDevice(Protocol):
    """What a device also has that can take part in iterative jobs."""

    def prepare_iterations(self, job: IterativeJob) -> StageExecutor:
        """Make the kernels of all stages. Replaces the previous job; `prepare(None)` drops it.

        Raises
        ------
        UsageError
            The variant isn't installed here, or making it failed.
        DeviceOutOfMemory
        """
