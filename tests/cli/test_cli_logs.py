from __future__ import annotations

import json
import logging
import os
from datetime import datetime
from pathlib import Path

import pytest
from served import Place, says

from hetsched.cli import logs

from .conftest import Call


def record(message: str, *arguments: object, error: Exception | None = None) -> logging.LogRecord:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord(
        "hetsched.engine", logging.WARNING, "engine.py", 1, message, arguments, exc_info
    )
    made.created = 1_700_000_000.25
    return made


def raised() -> Exception:
    try:
        raise ValueError("bad\nthing")
    except ValueError as error:
        return error


def as_json(made: logging.LogRecord) -> dict[str, object]:
    line = logs.JsonFormatter().format(made)
    assert "\n" not in line
    fields: dict[str, object] = json.loads(line)
    return fields


def test_a_json_line_has_time_level_logger_and_message() -> None:
    fields = as_json(record("device %s\x1b[2J lost", "gpu0"))

    assert fields == {
        "time": "2023-11-14T22:13:20.250000+00:00",
        "level": "warning",
        "logger": "hetsched.engine",
        "message": "device gpu0\x1b[2J lost",
    }
    assert datetime.fromisoformat(str(fields["time"])).timestamp() == 1_700_000_000.25


def test_a_message_about_a_job_has_its_number_as_a_field() -> None:
    assert as_json(record("job %d can't start", 42))["job"] == 42
    assert "job" not in as_json(record("%d jobs wait", 42))
    assert "job" not in as_json(record("job %d"))


def test_an_error_is_in_fields() -> None:
    fields = as_json(record("file %s", "a\udcff", error=raised()))
    assert (fields["message"], fields["error"]) == ("file a\udcff", "ValueError")
    assert 'raise ValueError("bad\\nthing")' in str(fields["traceback"])


def test_every_line_for_the_journal_has_its_priority() -> None:
    text = logs.JournalFormatter(True).format(record("job %d: no", 7, error=raised()))

    assert text.startswith("<4>hetsched.engine: job 7: no (ValueError: bad\\nthing)\n<4>Traceback")
    assert all(line.startswith("<4>") for line in text.split("\n"))
    made = record("text")
    for made.levelno, priority in ((logging.ERROR, 3), (logging.DEBUG, 7), (35, 6)):
        assert logs.JournalFormatter(False).format(made).startswith(f"<{priority}>")


def test_the_journal_is_recognised_by_its_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "stream").open("w") as stream:
        monkeypatch.setattr("sys.stderr", stream)
        status = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        assert logs.default_format() == "journal"

        monkeypatch.setenv("JOURNAL_STREAM", "1:2")
        assert logs.default_format() == "text"


def test_an_unknown_format_is_a_usage_error(call: Call) -> None:
    ended = call("config", "path", "--log-format", "xml")

    assert (ended.code, ended.error) == (
        2,
        "--log-format 'xml': choose from: text, json, journal",
    )


@pytest.mark.parametrize("words", ["--log-format json nonsense", "nonsense --log-format=json"])
def test_the_last_error_is_json_too(call: Call, words: str) -> None:
    ended = call(*words.split())

    fields = json.loads(ended.err)
    assert (fields["level"], fields["code"]) == ("error", 2)
    assert "no command 'nonsense'" in fields["message"]


def test_a_daemon_logs_only_objects(tmp_path: Path) -> None:
    with Place(tmp_path).started("serve", "--log-format", "json") as daemon:
        said = says(daemon, '"listening')
        daemon.terminate()
        _, rest = daemon.communicate(timeout=60)

    lines = [json.loads(line) for line in (said + rest).splitlines()]
    assert (daemon.returncode, lines[-1]["message"]) == (0, "stopped")
    assert all(line["logger"].startswith("hetsched.") for line in lines)
