"""The engine of this process, with a state of its own, on cores and on an emulated GPU; or threads
alone, as in short calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched.functions import call, run
from hetsched.functions.session import session

GPU = """
[[device]]
kind = "cpu"
count = 2

[[device]]
kind = "emulated"
memory = "4MiB"
compute = { gap = "10us", unit = "1us" }
h2d = { gap = "5us", rate = "4GB/s" }
d2h = { gap = "5us", rate = "4GB/s" }
"""


@pytest.fixture(scope="module", params=["cores", "emulated GPU"])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("functions")
    config = folder / "config.toml"
    config.write_text(GPU if request.param == "emulated GPU" else '[[device]]\nkind = "cpu"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HETSCHED_CONFIG", str(config))
        patch.setenv("HETSCHED_STATE_DIR", str(folder))
        session.close()
        if request.param == "threads":
            patch.setattr(type(session), "short", 1e9)
            patch.setattr(run, "HANDING", 0.0)
            patch.setattr(call, "LEAST", 0.0)
        yield request.param
        session.close()
