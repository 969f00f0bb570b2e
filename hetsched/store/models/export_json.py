"""Exports of models as JSON, one object on one line, validated when read. Pure."""

from __future__ import annotations

from collections import Counter

import msgspec

from hetsched.errors import ConfigError, DataError
from hetsched.store.models.export_format import KIND, VERSION, Export, describe_key

MAX_QUOTED = 60
"""Characters of an unknown schema that an error quotes."""


class _ExportHeader(msgspec.Struct):
    """The field that identifies an export of any version."""

    schema: str = ""


_decode_header = msgspec.json.Decoder(_ExportHeader).decode
_decode_export = msgspec.json.Decoder(Export).decode


def encode(export: Export) -> bytes:
    """Return `export` as one line of JSON."""
    return msgspec.json.encode(export) + b"\n"


def decode(raw: bytes, source: str) -> Export:
    """Read an export; `source` names it in errors.

    Raises
    ------
    DataError
        Not an export, or a broken one.
    ConfigError
        A newer version.
    """
    _check_version(raw, source)
    try:
        export = _decode_export(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{source}: broken export: {error}") from None
    if len({races.key for races in export.races}) < len(export.races):
        raise DataError(f"{source}: broken export: races of one key occur twice")
    counts = Counter(model.key for model in export.models)
    duplicates = [key for key, count in counts.items() if count > 1]
    if duplicates:
        raise DataError(f"{source}: broken export: two models of {describe_key(duplicates[0])}")
    return export


def _check_version(raw: bytes, source: str) -> None:
    """Raise ConfigError if the format's version is newer than this one's."""
    try:
        schema = _decode_header(raw).schema
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{source}: not an export of hetsched models: {error}") from None
    kind, _, number = schema.partition("/")
    if kind != KIND or not number.isdecimal():
        reason = f"schema {schema[:MAX_QUOTED]!r}" if schema else "no schema in it"
        raise DataError(f"{source}: not an export of hetsched models: {reason}")
    if int(number) > VERSION:
        raise ConfigError(
            f"{source}: exported by a newer hetsched (format {number[:20]}, this one reads up to"
            f" {VERSION}); update hetsched"
        )
