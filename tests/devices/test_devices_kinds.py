from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hetsched
from hetsched.config import parse
from hetsched.device import DEVICE_KINDS, DeviceKind
from hetsched.errors import ConfigError

TOY = DeviceKind(
    name="toy", config_name="toybox", group="toys", package="toy_kind", variant_kind="toy"
)
CONFIG = "[[device]]\nkind = 'toybox'\ncount = 2\n"


@pytest.fixture
def toy_kind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(DEVICE_KINDS, "toy", TOY)


@pytest.fixture
def local(toy_kind: None) -> Iterator[hetsched.Local]:
    with hetsched.Local(parse(CONFIG, "test"), learn=False) as local:
        yield local


def test_a_registered_kind_runs_jobs(local: hetsched.Local) -> None:
    x = np.arange(160.0).reshape(40, 4)

    job = local.submit("toys:Toy", x, verify=True)
    y = job.result(timeout=60)

    np.testing.assert_array_equal(y, 2 * x + 1)
    assert job.report is not None
    assert [(device.device, device.kind) for device in job.report.devices] == [
        ("toy0", "toy"),
        ("toy1", "toy"),
    ]
    assert sum(device.share for device in job.report.devices) == 40


def test_a_kernel_that_fails_there_runs_on_a_core(toy_kind: None) -> None:
    """Also without a link, as on a GPU that shares the host's memory."""
    x = np.arange(160.0).reshape(40, 4)
    config = CONFIG + "[[device]]\nkind = 'cpu'\ncount = 1\n"
    with hetsched.Local(parse(config, "test"), learn=False) as local:
        job = local.submit("accelerator_toys:Picky", x)
        y = job.result(timeout=60)

    np.testing.assert_array_equal(y, 2 * x + 1)
    assert job.report is not None
    assert any("toy0 takes no part in this job" in note for note in job.report.notes)


def test_an_unregistered_kind_is_an_error_of_the_config() -> None:
    with pytest.raises(
        ConfigError, match=r"device\[0\].kind: no device kind 'toybox'; choose from"
    ):
        parse(CONFIG, "test")
