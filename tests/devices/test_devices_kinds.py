from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hetsched
from hetsched.config import parse
from hetsched.device import DEVICE_KINDS, DeviceKind
from hetsched.errors import ConfigError

MIB = 1 << 20
TOY = DeviceKind(
    name="toy", config_name="toybox", group="toys", package="toy_kind", variant_kind="cpu",
    has_link=True, shares_memory=True,
)  # fmt: skip
CONFIG = "[[device]]\nkind = 'toybox'\ncount = 2\n"


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file that says how many bytes of the toys' memory others use."""
    file = tmp_path / "used"
    file.write_text("0")
    monkeypatch.setenv("TOY_MEMORY_USED", str(file))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(DEVICE_KINDS, "toy", TOY)
    return file


def test_a_registered_kind_runs_jobs_on_what_others_leave_of_its_memory(used: Path) -> None:
    x = np.arange(160.0).reshape(40, 4)
    with hetsched.Local(parse(CONFIG, "test"), learn=False) as local:
        jobs = []
        for others in (0, 1000 * MIB, 1000 * MIB):  # noticed at the end of a job
            now = used.with_suffix(".new")
            now.write_text(str(others))
            now.replace(used)
            jobs.append(local.submit("toys:Toy", x, verify=True))
            np.testing.assert_array_equal(jobs[-1].result(timeout=60), 2 * x + 1)
        first = jobs[0].report  # equal shares: nothing is known of either
        assert first is not None
        shares = {device.device: device.share for device in first.devices}
        assert shares.keys() == {"toy0", "toy1"} and sum(shares.values()) == 40
        assert 536 * MIB in {info.memory for info in local.devices()[0]}


def test_an_unregistered_kind_is_an_error_of_the_config() -> None:
    with pytest.raises(
        ConfigError, match=r"device\[0\].kind: no device kind 'toybox'; choose from"
    ):
        parse(CONFIG, "test")
