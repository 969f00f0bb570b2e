"""The power-cut test notices what it is there for: writes that weren't on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched.store import journal_file
from robustness.power_cuts import cut_power


@pytest.mark.usefixtures("caplog")
def test_without_the_repair_of_the_wal_failed_syncs_lose_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(path: Path, vfs: str | None) -> bool:
        return False

    monkeypatch.setattr(journal_file, "rewrite_wal", nothing)

    tally = cut_power(600, seed=0)

    assert tally.lost + tally.damaged > 0
