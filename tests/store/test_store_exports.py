"""Exports of models: encoding, validation, merging."""

import json

import pytest

from hetsched.errors import DataError
from hetsched.models.history import History
from hetsched.models.samples import Sample
from hetsched.store.model_records import (
    SCHEMA,
    Export,
    ModelKey,
    StoredModel,
    decode,
    encode,
)

KEY = ModelKey("fft", "512x512 complex64", "pyfftw", "0.15", "cpu0 Some Processor", "memory")


def learnt(
    *observations: tuple[int, float, float], key: ModelKey = KEY, runs: int = 1
) -> StoredModel:
    """Totals, as (units, seconds, at)."""
    rows = [Sample("total", units, seconds, at=at) for units, seconds, at in observations]
    return StoredModel.of(key, History(runs, rows))


def export(*models: StoredModel) -> Export:
    return Export(hetsched="0.1.0", models=models)


def broken(**changes: object) -> bytes:
    """An export whose only model has other fields."""
    record = json.loads(encode(export(learnt((1, 2.0, 3.0)))))
    record["models"][0].update(changes)
    return json.dumps(record).encode()


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "not an export"),
        (b"PK\x03\x04", "not an export"),
        (b"\xff\xfe{}", "not an export"),
        (b"[]", "not an export"),
        (b"{}", "its schema is 'none'"),
        (b'{"schema": 7}', "not an export"),
        (b'{"schema": "hetsched.job/1"}', "'hetsched.job/1'"),
        (b'{"schema": "hetsched.models.export/one"}', "not an export"),
        (encode(export(learnt((1, 2.0, 3.0))))[:-9], "not an export"),
        (f'{{"schema": "{SCHEMA}"}}'.encode(), "broken export.*hetsched"),
        (broken(runs=-1), "broken export"),
        (broken(runs=2**63), "broken export"),
        (broken(storage=3), "broken export"),
        (broken(colour="red"), "broken export.*colour"),
        (broken(observations=[["warp", 1, 2.0]]), r"broken export.*observations\[0\]"),
        (broken(observations=[["total", 0, 2.0]]), "broken export"),
        (broken(observations=[["total", 1, -2.0]]), "broken export"),
        (broken(observations=[["total", 1, 1e999]]), "not an export"),
        (broken(observations=[["total", 1]]), "broken export"),
        (broken(observations=[["total", 1, 2.0, 1, 1e300]]), "broken export"),
        (broken(observations=[["total", 1, 2.0, 1, -1.0]]), "broken export"),
        (
            encode(export(learnt((1, 2.0, 3.0)), learnt((2, 2.0, 3.0)))),
            "2 records of one key",
        ),
    ],
)
def test_anything_but_an_export_is_refused_in_one_line(raw: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=f"^some file: .*{reason}") as caught:
        decode(raw, "some file")

    assert "\n" not in str(caught.value)


def test_merging_orders_by_time_and_counts_common_observations_once() -> None:
    first = learnt((10, 5.0, 1.0), (10, 5.0, 4.0), runs=2)
    second = learnt((10, 6.0, 3.0), (10, 5.0, 4.0), runs=5)

    union = first.merged(second)

    assert union.runs == 5
    assert [(entry.seconds, entry.at) for entry in union.observations] == [
        (5.0, 1.0), (6.0, 3.0), (5.0, 4.0)
    ]  # fmt: skip
    assert union.merged(second) is union
    assert union.merged(first) is union
