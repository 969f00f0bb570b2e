"""Results of probing: the device processes to start, and the missing devices."""

from __future__ import annotations

import msgspec

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A device process: its device, the configuration, extra environment variables.

    `package`: the package of the kind, which opens the device. `lazy`: the process is started
    when a job first needs it. `forks`: it is forked from a warm template, which has no vendor
    runtimes and no `env`. `warm_for`: seconds for which an idle device keeps memory.
    """

    package: str
    device: DeviceInfo
    config: DeviceConfig
    env: dict[str, str] = {}
    lazy: bool = False
    forks: bool = False
    warm_for: float = 60.0


class Probe(msgspec.Struct, frozen=True):
    """`absent`: names or groups of missing devices -> the reason, one line each."""

    processes: tuple[ProcessSpec, ...] = ()
    absent: dict[str, str] = {}
