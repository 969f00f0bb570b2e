"""The ways to the daemon. Importing a client takes a while, so it waits until it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetsched.client.client import Client
    from hetsched.client.control import Control


def control() -> Control:
    """A connection for everything but arrays, to be used in a `with`; without NumPy.

    Raises
    ------
    Unavailable
        No daemon. ProtocolError: one of another version.
    """
    from hetsched.client.control import Control

    return Control()


def client() -> Client:
    """A connection that can fetch arrays too. Raises as `control` does."""
    from hetsched.client.client import Client

    return Client()
