"""A store of LangGraph, its key-value memory, in a file of `annals`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from os import PathLike
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
)

from annals import InvalidError, KvItem, Store
from annals.langgraph._open import opened

# The loop of the asynchronous call that this thread works for: an embedding function may be a coroutine of it.
_loop: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("annals_store_loop", default=None)

# An entry of LangGraph is there in the last microsecond of its lifetime, one of annals is not.
_LAST_MICROSECOND = 1e-6


class AnnalsStore(BaseStore):
    """The key-value memory of LangGraph in a file of `annals`.

    It has lifetimes, and with `index` searches by meaning. A batch is read at once, and its puts are one commit. All
    methods may be called from any thread and any event loop; the asynchronous ones do not block theirs.
    """

    supports_ttl = True

    def __init__(
        self,
        store: Store | str | PathLike[str],
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        """Takes a store, the path of a file, which is made if it does not exist, or the URL of a PostgreSQL server.

        `index` has `dims`, `embed` (embeddings of LangChain, a function or a coroutine) and `fields`; `ttl` is that of
        LangGraph: without `omit_expired` an expired entry is returned until `sweep_ttl` removes it.
        """
        super().__init__()
        self.ttl_config = ttl
        self.index_config = index
        settings = ttl or TTLConfig()
        self._kv = opened(store).kv(
            index=None if index is None else _index(index),
            retain_expired=not settings.get("omit_expired", False),
        )

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs the reads of a batch, then its writes in one commit. Of several puts for a key the last one counts."""
        ops = list(ops)
        puts: dict[tuple[tuple[str, ...], str], PutOp] = {}
        for op in ops:
            _check(op)
            if isinstance(op, PutOp):
                puts[op.namespace, str(op.key)] = op
        try:
            results = [self._read(op) for op in ops]
            if puts:
                self._kv.write_all([_write(op) for op in puts.values()])
        except InvalidError as error:
            if error.code == "INVALID_NAMESPACE":
                raise InvalidNamespaceError(str(error)) from error
            raise
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs the reads of a batch, then its writes in one commit."""
        token = _loop.set(asyncio.get_running_loop())
        try:
            return await asyncio.to_thread(self.batch, ops)
        finally:
            _loop.reset(token)

    def sweep_ttl(self) -> int:
        """Removes the entries that have expired, and returns their number."""
        return self._kv.sweep()

    async def asweep_ttl(self) -> int:
        """Removes the entries that have expired, and returns their number."""
        return await asyncio.to_thread(self.sweep_ttl)

    def _refreshes(self, op: GetOp | SearchOp) -> bool:
        # An operation asks for it by default, also of a store without a configuration of lifetimes.
        return op.refresh_ttl and self.ttl_config is not None

    def _read(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            item = self._kv.get(op.namespace, str(op.key), refresh_ttl=self._refreshes(op))
            return None if item is None else _item(item)
        if isinstance(op, SearchOp):
            found = self._kv.search(
                op.namespace_prefix,
                query=op.query or None,
                filter=op.filter or None,
                limit=op.limit if op.limit >= 0 else sys.maxsize,
                offset=max(0, op.offset),
                newest_first=True,
                refresh_ttl=self._refreshes(op),
            )
            return [_search_item(item) for item in found]
        if isinstance(op, ListNamespacesOp):
            conditions = op.match_conditions or ()
            found_namespaces = self._kv.list_namespaces(
                prefixes=[condition.path for condition in conditions if condition.match_type == "prefix"],
                suffixes=[condition.path for condition in conditions if condition.match_type == "suffix"],
                max_depth=op.max_depth,
                limit=op.limit if op.limit >= 0 else sys.maxsize,
                offset=max(0, op.offset),
            )
            return [tuple(labels) for labels in found_namespaces]
        return None


def _check(op: Op) -> None:
    """Refuses a label that no entry can have: the memory finds nothing under it, and LangGraph's stores refuse it."""
    if isinstance(op, ListNamespacesOp):
        paths: Sequence[Sequence[str]] = [condition.path for condition in op.match_conditions or ()]
    elif isinstance(op, SearchOp):
        paths = [op.namespace_prefix]
    elif isinstance(op, (GetOp, PutOp)):
        paths = [op.namespace]
    else:
        raise ValueError(f"{type(op).__name__} is not an operation of a store")
    for label in (label for path in paths for label in path):
        if not isinstance(label, str) or not label or "." in label or "\0" in label:
            reason = "labels are texts, not empty, without dots and NUL characters"
            raise InvalidNamespaceError(f"the label {label!r} is not valid: {reason}")


def _write(
    op: PutOp,
) -> tuple[tuple[str, ...], str, dict[str, Any] | None, float | None, list[str] | bool | None]:
    value = None if op.value is None else dict(op.value)
    if _holds_bytes(value):
        raise TypeError(f"the value under {op.key!r} holds bytes, and a store of LangGraph holds JSON")
    ttl = None if op.ttl is None else op.ttl * 60 + _LAST_MICROSECOND
    return op.namespace, str(op.key), value, ttl, op.index


def _holds_bytes(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_bytes, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_holds_bytes, value))
    return isinstance(value, (bytes, bytearray))


def _item(item: KvItem) -> Item:
    return Item(
        value=item.value,
        key=item.key,
        namespace=item.namespace,
        created_at=item.created_at,
        updated_at=item.updated_at,
    )


def _search_item(item: KvItem) -> SearchItem:
    return SearchItem(
        namespace=item.namespace,
        key=item.key,
        value=item.value,
        created_at=item.created_at,
        updated_at=item.updated_at,
        score=item.score,
    )


def _index(index: IndexConfig) -> dict[str, Any]:
    """Returns the index of the memory: functions that call the embeddings, on their loop if they are coroutines."""
    embeddings = ensure_embeddings(index["embed"])

    def embed(texts: list[str]) -> list[list[float]]:
        if (loop := _loop.get()) is not None:
            return asyncio.run_coroutine_threadsafe(embeddings.aembed_documents(texts), loop).result()
        return embeddings.embed_documents(texts)

    def embed_query(text: str) -> list[float]:
        if (loop := _loop.get()) is not None:
            return asyncio.run_coroutine_threadsafe(embeddings.aembed_query(text), loop).result()
        return embeddings.embed_query(text)

    return {"dims": index["dims"], "embed": embed, "embed_query": embed_query, "fields": index.get("fields")}
