"""A variant that can't be made is skipped; the job doesn't fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hetsched
from hetsched.errors import HetschedError

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hetsched.Local]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("PYTHONPATH", str(HERE))
        with hetsched.Local("cpu-only", learn=False) as local:
            yield local


def test_the_job_is_done_by_the_variant_that_can_be_made(local: hetsched.Local) -> None:
    x = np.arange(80.0).reshape(20, 4)

    job = local.submit("odd_variants:Odd", x, verify=True)
    y = job.result(timeout=60)

    np.testing.assert_array_equal(y, 2 * x)
    assert job.report is not None
    assert {device.variant for device in job.report.devices if device.share} == {"sound"}


def test_without_any_variant_the_job_ends(local: hetsched.Local) -> None:
    with pytest.raises(HetschedError, match=r"no working variant of odd.*bound to another"):
        local.submit("odd_variants:Odd", sound=False).result(timeout=60)


def test_a_variant_that_cannot_be_made_for_a_job_serves_others(local: hetsched.Local) -> None:
    with pytest.raises(HetschedError):
        local.submit("odd_variants:Odd", units=19, sound=False).result(timeout=60)

    job = local.submit("odd_variants:Odd", units=19, verify=True)

    assert job.result(timeout=60).shape == (19, 4)
