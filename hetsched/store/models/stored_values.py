"""The types of the values in ``models.db`` and in exports; `msgspec` checks them when it reads."""

from __future__ import annotations

from typing import Annotated

import msgspec

from hetsched.models.evidence.samples import MAX_SECONDS, MIN_SECONDS
from hetsched.units import NUMBER_LIMIT

Count = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_LIMIT - 1)]
Units = Annotated[int, msgspec.Meta(ge=1, le=NUMBER_LIMIT - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=MIN_SECONDS, le=MAX_SECONDS)]
Pace = Annotated[float, msgspec.Meta(ge=MIN_SECONDS / NUMBER_LIMIT, le=MAX_SECONDS)]
Paces = dict[str, tuple[Pace | None, ...]]
Moment = Annotated[float, msgspec.Meta(ge=0, lt=1e11)]
"""Seconds since the epoch."""
