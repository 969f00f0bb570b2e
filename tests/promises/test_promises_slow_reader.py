"""A client that doesn't read its replies."""

from __future__ import annotations

import contextlib
import threading

from served import serving

EMULATED = '[[device]]\nkind = "emulated"\nclock = "virtual"\ncompute = { unit = "1us" }\n'
REQUESTS = 600
LARGE_TEXT = "x" * 100_000
"""Its job's description doesn't fit into a message of the session."""


def test_others_are_served_while_a_client_leaves_large_replies_unread() -> None:
    is_accepted, is_over, is_blocked = (threading.Event() for _ in range(3))

    def block(state: object) -> None:
        if is_accepted.is_set():
            is_blocked.set()
            is_over.wait(100)

    with serving(EMULATED) as daemon, contextlib.ExitStack() as stack:
        slow = stack.enter_context(daemon.client())
        stack.callback(is_over.set)
        job = slow.submit("toys:Toy", name=LARGE_TEXT, hold=True, follow=block)
        is_accepted.set()
        with daemon.client() as other:
            other.release(job.id)
        assert is_blocked.wait(60)

        def ask() -> None:
            with contextlib.suppress(Exception):
                slow.status()

        for _ in range(REQUESTS):
            threading.Thread(target=ask, daemon=True).start()
        for _ in range(20):
            with daemon.client() as client:
                assert client.ping()
        assert daemon.stop() == 0
