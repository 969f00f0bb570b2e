"""The barrier that orders stores of processes on processors that reorder them."""

from __future__ import annotations

import pytest

from hetsched.errors import Unavailable
from hetsched.transport import futex


def test_a_processor_that_reorders_stores_executes_a_barrier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(futex, "IS_ORDERED", False)

    futex.register()
    futex.order_stores()

    futex.register.cache_clear()


def test_a_machine_without_such_a_barrier_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(futex, "IS_ORDERED", False)
    monkeypatch.setattr(futex, "_MEMBARRIER", {})

    with pytest.raises(Unavailable, match=r"need membarrier\(2\)"):
        futex.order_stores()
