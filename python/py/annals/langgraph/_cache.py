"""A cache of LangGraph in a file of `annals`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from os import PathLike

from langgraph.cache.base import BaseCache, FullKey, Namespace, ValueT
from langgraph.checkpoint.serde.base import SerializerProtocol

from annals import Store
from annals.langgraph._open import opened


class AnnalsCache(BaseCache[ValueT]):
    """The results of nodes with a `CachePolicy`, in a file of `annals`.

    A label may hold any character but NUL, and an entry that has expired is never returned. All methods may be called
    from any thread; the asynchronous ones do not block the loop.
    """

    def __init__(self, store: Store | str | PathLike[str], *, serde: SerializerProtocol | None = None) -> None:
        """Takes a store, the path of a file, which is made if it does not exist, or the URL of a PostgreSQL server."""
        super().__init__(serde=serde)
        self._cache = opened(store).cache()

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        """Returns the values that are there, by their keys."""
        wanted = list(dict.fromkeys((tuple(namespace), key) for namespace, key in keys))
        found = self._cache.get(wanted)
        loads = self.serde.loads_typed
        return {key: loads(tuple(value)) for key, value in zip(wanted, found) if value is not None}

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        """Returns the values that are there, by their keys."""
        return await asyncio.to_thread(self.get, keys)

    def set(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        """Stores values, each with its lifetime in seconds; `None` lets it stay."""
        for (namespace, key), (value, ttl) in pairs.items():
            tag, data = self.serde.dumps_typed(value)
            self._cache.put(namespace, key, [tag, data], ttl=None if ttl is None else max(0.0, ttl))

    async def aset(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        """Stores values, each with its lifetime in seconds; `None` lets it stay."""
        await asyncio.to_thread(self.set, pairs)

    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Removes the values of some namespaces, or all of them."""
        self._cache.clear(namespaces)

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Removes the values of some namespaces, or all of them."""
        await asyncio.to_thread(self.clear, namespaces)
