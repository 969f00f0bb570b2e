"""The limit of the queue, which the engine enforces for Local and daemon alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched.config import load
from hetsched.errors import TryAgain
from hetsched.local import Local

CONFIG = """
[queue]
limit = 2

[[device]]
kind = "emulated"
name = "emu0"
compute = { unit = "1us" }
"""


def test_a_full_queue_is_refused_until_a_job_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "queue.toml"
    path.write_text(CONFIG)
    with Local(config=load(str(path))[0], learn=False) as local:
        first = local.submit("fft", batch="1x8x8", hold=True)
        second = local.submit("fft", batch="1x8x8", hold=True)

        with pytest.raises(TryAgain, match="queue is full: 2 jobs wait or run"):
            local.submit("fft", batch="1x8x8")

        local.release(first.id)
        first.result(60)
        local.submit("fft", batch="1x8x8").cancel()
        second.cancel()
