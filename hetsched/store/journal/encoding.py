"""Records as bytes in the journal's columns: MessagePack with field names.

Decoding ignores fields that it doesn't know and fills in defaults.
"""

from __future__ import annotations

import msgspec

from hetsched.job import Done, Failed, JobSpec
from hetsched.store.arrays.publication import PreparedOutput

MAX_STATE_BYTES = 32 << 10
"""A larger final state is stored without its chunks: 2.3 million after an hour on 64 cores."""

_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode

decode_spec = msgspec.msgpack.Decoder(JobSpec).decode
decode_outputs = msgspec.msgpack.Decoder(tuple[PreparedOutput, ...]).decode
decode_state = msgspec.msgpack.Decoder(Done | Failed).decode

NONE = encode(())
"""No outputs."""


def encode_state(state: Done | Failed) -> bytes:
    """Encode a final state; without results, which are in memory, and bounded in size."""
    if state.results:
        state = msgspec.structs.replace(state, results={})
    raw = encode(state)
    if len(raw) <= MAX_STATE_BYTES:
        return raw
    report = state.report
    devices = tuple(msgspec.structs.replace(device, chunks=()) for device in report.devices)
    return encode(
        msgspec.structs.replace(state, report=msgspec.structs.replace(report, devices=devices))
    )
