"""How long a client keeps the arrays that it has submitted."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from daemon_harness import Harness

from hetsched.client.client import Client


@pytest.mark.parametrize("is_shared", [False, True])
def test_inputs_are_kept_until_the_jobs_end_is_known(
    is_shared: bool, harness: Harness, client: Client
) -> None:
    x = client.empty((4, 8), "float64") if is_shared else np.empty((4, 8))
    x[...] = 1
    job = client.submit("wait", x)
    (segment,) = [ref.segment for ref in harness.engine.specs[0].inputs.values()]  # type: ignore[union-attr]
    del x
    gc.collect()
    client.ping()
    harness.ask(lambda: harness.arena.release(segment))  # the job's own reference

    assert harness.ask(lambda: harness.arena.holds(segment))
    harness.ask(lambda: harness.arena.retain(segment))
    harness.ask(lambda: harness.engine.finish(job.id))
    job.result(60)
    assert harness.until(lambda: not harness.arena.holds(segment))
