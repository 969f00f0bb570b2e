"""Connections to the daemon. The client is imported only where one is made, for a fast start."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetsched.client.client import Client
    from hetsched.client.control import Control


def control() -> Control:
    """Connect to the daemon without NumPy, for everything but arrays. Use it in a `with`.

    Raises
    ------
    Unavailable
        No daemon.
    ProtocolError
        The daemon has another version.
    """
    from hetsched.client.control import Control

    return Control()


def client() -> Client:
    """Connect to the daemon for everything, arrays included. Raises as `control` does."""
    from hetsched.client.client import Client

    return Client()
