"""Check hetsched's own parts: models, configuration, devices."""

from __future__ import annotations

from hetsched import paths
from hetsched.cli.commands.doctor.check_result import CheckResult
from hetsched.config import load
from hetsched.errors import HetschedError, Unavailable
from hetsched.units import counted


def models() -> list[CheckResult]:
    """Read all models, since any page of a database may be damaged."""
    from hetsched.store.model_records import collect

    path = paths.models_path()
    count = len(collect(path).models)
    return [CheckResult("models", f"{path}: {counted(count, 'model') if count else 'none yet'}")]


def configuration(name: str | None) -> list[CheckResult]:
    """Check that the configuration is valid."""
    config, source = load(name)
    return [CheckResult("config", f"{source}: {len(config.device)} device tables")]


def devices(name: str | None) -> list[CheckResult]:
    """Check that there is a device; report those that are missing."""
    from hetsched.devices.probe import probe

    try:
        config, _ = load(name)
    except HetschedError:
        return []  # reported by `configuration`
    machine = probe(config)
    names = [process.device.name for process in machine.processes]
    code = 0 if names else Unavailable.code
    results = [CheckResult("devices", ", ".join(names) or "none", code)]
    results += [CheckResult(name, f"not available: {why}") for name, why in machine.absent.items()]
    return results
