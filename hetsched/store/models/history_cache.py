"""The histories in memory, bounded in bytes: those used least recently are dropped first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator

from hetsched.models.evidence.history import History
from hetsched.store.models.models_db import ModelKey


class HistoryCache:
    """Histories by key, the one used last at the end.

    Parameters
    ----------
    max_bytes : int, bytes
        Of all together, estimated.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._histories: OrderedDict[ModelKey, History] = OrderedDict()
        self._sizes: dict[ModelKey, int] = {}
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._histories)

    def __contains__(self, key: ModelKey) -> bool:
        return key in self._histories

    def items(self) -> Iterator[tuple[ModelKey, History]]:
        """Yield all histories. Doesn't count as a use."""
        yield from self._histories.items()

    def get(self, key: ModelKey) -> History | None:
        """Return a history, and note its use."""
        history = self._histories.get(key)
        if history is not None:
            self._histories.move_to_end(key)
        return history

    def put(self, key: ModelKey, history: History) -> None:
        """Add a history, or measure it again after it has grown."""
        self._histories[key] = history
        self._histories.move_to_end(key)
        size = history.nbytes
        self.nbytes += size - self._sizes.get(key, 0)
        self._sizes[key] = size

    def trim(self, pinned: Collection[ModelKey]) -> None:
        """Drop histories until the others fit, but none of `pinned` and not the last one."""
        for key in list(self._histories)[:-1]:
            if self.nbytes <= self._max_bytes:
                return
            if key not in pinned and not self._histories[key].rewritten:
                del self._histories[key]
                self.nbytes -= self._sizes.pop(key)

    def clear(self) -> None:
        self._histories.clear()
        self._sizes.clear()
        self.nbytes = 0
