"""Who is served: credentials from the kernel on both sockets, a handshake that fails closed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from daemon_harness import Harness, RawClient

from hetsched.transport.messages import (
    PROTOCOL,
    Decoder,
    Envelope,
    Hello,
    Ping,
    Pong,
    Refused,
    Reply,
    encode,
)
from hetsched.transport.sockets import (
    NOBODY,
    address_peer,
)

OTHER_UID = 65533

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")

ASK = """
import os, socket, sys, zmq
endpoint, uid, payload = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3])
if uid != os.getuid():
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
session = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
if sys.argv[5]:
    session.connect(sys.argv[5])
    session.send(bytes.fromhex(sys.argv[6]))
    session.recv(1000)
dealer = zmq.Context().socket(zmq.DEALER)
dealer.setsockopt(zmq.LINGER, 0)
dealer.connect(f"ipc://{endpoint}")
dealer.send(payload)
print(dealer.recv().hex() if dealer.poll(int(sys.argv[4])) else "no reply", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    "address",
    ["", "127.0.0.1", "127.0.0.1:5555", "localhost:0:0", "localhost:0:0:1:2", "localhost:-1:0:1",
     "localhost:0:0:x", "localhost:٣:0:1", "evil:0:0:1"],
)  # fmt: skip
def test_an_address_of_another_form_identifies_no_peer(address: str) -> None:
    assert address_peer(address) == NOBODY


def test_a_token_is_worth_nothing_in_another_process(harness: Harness, raw: RawClient) -> None:
    envelope = Envelope(raw.token, 3, Ping())
    answer = ask_in_another_process(harness, envelope, os.getuid(), True, patience_ms=10_000)
    assert isinstance(answer, Refused) and answer.error.code == 77
    raw.ask(3, Ping())
    assert isinstance(raw.reply().answer, Pong)


def test_a_process_without_a_session_gets_no_reply(harness: Harness, raw: RawClient) -> None:
    envelope = Envelope(raw.token, 3, Ping())
    assert ask_in_another_process(harness, envelope, os.getuid()) is None


@needs_root
def test_another_user_gets_no_reply_even_with_a_token(harness: Harness, raw: RawClient) -> None:
    open_to_all(harness.folder)
    envelope = Envelope(raw.token, 3, Ping())
    assert ask_in_another_process(harness, envelope, OTHER_UID) is None
    assert harness.serves()


def ask_in_another_process(
    harness: Harness,
    envelope: Envelope,
    uid: int,
    with_session: bool = False,
    patience_ms: int = 500,
) -> object:
    """The answer to a request from a process of `uid`; None if it gets none in time."""
    endpoint = str(harness.folder / "control.sock")
    words = [endpoint, str(uid), encode(envelope).hex(), str(patience_ms)]
    session = str(harness.folder / "session.sock") if with_session else ""
    words += [session, encode(Hello(PROTOCOL, "test", 1)).hex()]
    done = subprocess.run(
        [sys.executable, "-c", ASK, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    text = done.stdout.strip()
    return None if text == "no reply" else answer_in(bytes.fromhex(text))


def answer_in(payload: bytes) -> object:
    reply: Reply = Decoder[Reply](Reply)(payload)
    return reply.answer


def open_to_all(folder: Path) -> None:
    """Undo the protection by file modes, so that only credentials are left."""
    for path in (folder, *folder.parents):
        if path.stat().st_uid == os.getuid() and path != Path("/tmp"):
            path.chmod(0o755 if path != folder else 0o777)
        if path.name.startswith("pytest-of-"):
            break
    for name in ("control.sock", "session.sock"):
        (folder / name).chmod(0o777)
