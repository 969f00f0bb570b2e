"""No call runs or loads what others wrote, and what SECURITY.md says is so."""

from __future__ import annotations

import ast
import os
from pathlib import Path

from hetsched.daemon.router import RECEIVE_QUEUE, SEND_QUEUE
from hetsched.daemon.sessions import MAX_SESSION_REQUEST
from hetsched.store import database, model_store
from hetsched.transport.messages import MAX_FRAME

ROOT = Path(__file__).parent.parent
FILES = sorted([*ROOT.glob("hetsched/**/*.py"), *ROOT.glob("workloads/**/*.py")])

FORBIDDEN = (
    "eval", "exec", "os.system", "os.popen", "tempfile.mktemp", "yaml.load", "recv_pyobj",
    "send_pyobj", "from_pickle", "read_pickle", "ctypes.py_object.from_address",
)  # fmt: skip
"""Names, or ends of dotted names, of functions that may not be called."""


def bad_calls(source: str) -> list[str]:
    """The forbidden calls in `source`."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [ast.unparse(call) for call in calls if is_forbidden(call)]


def is_forbidden(call: ast.Call) -> bool:
    name = dotted(call.func)
    keywords = {
        word.arg: ast.unparse(word.value)
        for word in call.keywords
        if word.arg in ("allow_pickle", "shell")
    }
    if name in ("np.load", "numpy.load") or name.endswith(("format.read_array", "fromregex")):
        return keywords.get("allow_pickle") != "False"
    if keywords.get("shell") == "True" or keywords.get("allow_pickle") == "True":
        return True
    return name in FORBIDDEN or name.endswith(tuple(f".{word}" for word in FORBIDDEN[2:]))


def dotted(function: ast.expr) -> str:
    """The name that is called; of what is no name only the end."""
    if isinstance(function, ast.Attribute):
        return f"{dotted(function.value)}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def test_no_file_runs_or_unpickles_what_others_wrote() -> None:
    found = {str(path): bad_calls(path.read_text(encoding="utf-8")) for path in FILES}
    assert {path: calls for path, calls in found.items() if calls} == {}


def test_the_limits_in_the_page_are_those_in_the_code() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "1 MiB per ZeroMQ frame" in page and MAX_FRAME == 1 << 20
    assert "4 KiB per\n  session message" in page and MAX_SESSION_REQUEST == 4 << 10
    assert max(SEND_QUEUE, RECEIVE_QUEUE) <= 64


def test_files_of_the_state_folder_are_for_their_owner_only(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        database.open_database(tmp_path / "models.db", model_store.FORMAT).close()
    finally:
        os.umask(mask)
    assert (tmp_path / "models.db").stat().st_mode & 0o777 == 0o600
