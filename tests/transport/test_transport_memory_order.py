"""The barrier that orders stores of processes on processors that reorder them."""

from __future__ import annotations

import pytest

from hetsched.errors import Unavailable
from hetsched.transport.iterations import memory_order


def test_a_processor_that_reorders_stores_executes_a_barrier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_order, "IS_ORDERED", False)

    memory_order.register()
    memory_order.order_stores()

    memory_order.register.cache_clear()


def test_a_machine_without_such_a_barrier_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_order, "IS_ORDERED", False)
    monkeypatch.setattr(memory_order, "_NUMBERS", {})

    with pytest.raises(Unavailable, match=r"need membarrier\(2\)"):
        memory_order.order_stores()
