"""A cache of tensors by memory, not by count."""

from collections import OrderedDict
from collections.abc import Hashable

from torch import Tensor


class TensorCache:
    """Keeps the tensors used last, up to ``max_bytes`` of them."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[Hashable, Tensor] = OrderedDict()

    def get(self, key: Hashable) -> Tensor | None:
        """The tensor of that key, or None."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: Hashable, value: Tensor) -> None:
        """Keeps a tensor; the least recently used go where room is needed."""
        if key in self._kept or value.nbytes > self._max_bytes:
            return
        self._kept[key] = value
        self._bytes += value.nbytes
        while self._bytes > self._max_bytes:
            self._bytes -= self._kept.popitem(last=False)[1].nbytes
