"""A checkpoint saver of LangGraph in a file of `annals`."""

from __future__ import annotations

import asyncio
import atexit
import datetime
import decimal
import inspect
import ipaddress
import pathlib
import re
import uuid
import zoneinfo
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal, cast

from langchain_core import messages
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from annals import InvalidError, Store
from annals._annals import _end_wakes, _Listing, _Put, _Saver
from annals.langgraph._open import opened

atexit.register(_end_wakes)

# Classes whose objects do not change, so that they are shared between the states that are handed out.
_FROZEN: list[type] = [
    datetime.date,
    datetime.datetime,
    datetime.time,
    datetime.timedelta,
    datetime.timezone,
    decimal.Decimal,
    ipaddress.IPv4Address,
    ipaddress.IPv4Interface,
    ipaddress.IPv4Network,
    ipaddress.IPv6Address,
    ipaddress.IPv6Interface,
    ipaddress.IPv6Network,
    pathlib.PosixPath,
    pathlib.PurePosixPath,
    pathlib.PureWindowsPath,
    pathlib.WindowsPath,
    re.Pattern,
    uuid.UUID,
    zoneinfo.ZoneInfo,
]

# Messages, which are copied field by field.
_MESSAGES: list[type] = [
    member
    for name in messages.__all__
    if inspect.isclass(member := getattr(messages, name)) and issubclass(member, messages.BaseMessage)
]


class _AskedId(str):
    """The id of a checkpoint that was handed out as a parent or in a listing, and not as the newest one.

    A put on it goes back in time, and has not lost a race. LangGraph copies configs, and with them this object.
    """

    __slots__ = ()


class AnnalsSaver(BaseCheckpointSaver[str]):
    """Keeps the checkpoints of LangGraph's threads in a file of `annals`, or on a PostgreSQL server.

        graph = builder.compile(checkpointer=AnnalsSaver("chat.db"))

    It is synchronous and asynchronous, and may be used from any thread and any event loop, also while a listing is
    read. What it hands out is a copy: editing it moves neither the file nor the saver. The checkpoints of one listing
    share the messages that they have in common: copy one of these before editing it. The threads can be read, compared
    and searched with `annals.Store` and with the command while a graph runs on them.
    """

    def __init__(
        self,
        store: Store | str | PathLike[str],
        *,
        serde: SerializerProtocol | None = None,
        on_conflict: Literal["error", "fork"] = "error",
    ) -> None:
        """Takes a store, the path of a file, which is made if it does not exist, or the URL of a PostgreSQL server.

        Two runs that continue one thread at the same time are a conflict. The second one to store a checkpoint is told
        with `ConflictError`, or with `on_conflict="fork"` its checkpoints become a branch of the thread.
        """
        super().__init__(serde=serde)
        self.store = opened(store)
        self._closes = not isinstance(store, Store)
        self._saver = _Saver(self.store, self.serde, _splits_lists(self.serde), _FROZEN, _MESSAGES, on_conflict)

    def __enter__(self) -> AnnalsSaver:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> AnnalsSaver:
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Stores the writes that wait for their checkpoint, and closes the store if the saver has opened it.

        The saver cannot be used afterwards; closing it again does nothing.
        """
        if "_saver" in vars(self):
            self.flush()
            del self._saver
        if self._closes:
            self.store.close()

    def __getattr__(self, name: str) -> Any:
        if name == "_saver":
            raise InvalidError("the saver is closed", "STORE_CLOSED")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def flush(self) -> None:
        """Stores the writes that wait for their checkpoint, so that other savers and processes see them."""
        self._saver.flush()

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Returns the checkpoint with the id of the config, or the newest one of the namespace."""
        thread, namespace, checkpoint = _place(config)
        found = self._saver.get(thread, namespace, checkpoint)
        if found is None:
            return None
        id, values, metadata, parent, writes = found
        of_id = config if checkpoint else _config(thread, namespace, id)
        return _tuple(of_id, thread, namespace, values, metadata, parent, writes)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Lists checkpoints, the greatest id first: of one thread and namespace, or of all.

        Nothing is locked between two of them. They are read page by page. A message that two successive checkpoints
        have is one object in both, unless it was edited before the second was read.
        """
        return map(_listed, self._listing(config, filter, before, limit))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint, and returns its config when it is on the disk."""
        thread, namespace, parent = _place(config)
        made = get_checkpoint_metadata(config, metadata)
        self._saver.put(
            thread,
            namespace,
            parent,
            cast("dict[str, Any]", checkpoint),
            made,
            new_versions,
            isinstance(parent, _AskedId),
        )
        return _config(thread, namespace, checkpoint["id"])

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Stores writes of a task. They wait some milliseconds at most for the checkpoint that takes them along."""
        thread, namespace, checkpoint = _place(config)
        # Writes that come out of the cache are lists in a deque.
        given = [(channel, value) for channel, value in writes]
        self._saver.put_writes(thread, namespace, checkpoint or "", given, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        """Deletes a thread with everything in it."""
        self._saver.delete_thread(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes the checkpoints of runs with their writes, in all threads."""
        self._saver.delete_for_runs([str(run) for run in run_ids])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies a thread with its namespaces, ids and writes."""
        self._saver.copy_thread(str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Removes all checkpoints of threads but the newest of each namespace, or with `delete` all.

        Raises `UnsupportedError` for a thread with delta channels, whose newest state needs the ones before it.
        """
        self._saver.prune([str(thread) for thread in thread_ids], strategy)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Returns for each channel its writes on the way from the nearest ancestor that has a value, and that value."""
        thread, namespace, checkpoint = _place(config)
        histories: dict[str, DeltaChannelHistory] = {}
        for channel, writes, seeds in self._saver.delta_history(thread, namespace, checkpoint, [*channels]):
            history = DeltaChannelHistory(writes=writes)
            if seeds:
                history["seed"] = seeds[0]
            histories[channel] = history
        return histories

    def get_next_version(self, current: str | None, channel: None = None) -> str:
        """Returns the version after another one."""
        return cast(str, self._saver.next_version(current))

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> AnnalsSaver:
        """Returns the saver with a serializer that decodes further classes as well."""
        clone = super().with_allowlist(extra_allowlist)
        if clone is self:
            return self
        made = cast(AnnalsSaver, clone)
        made._saver = self._saver.with_serde(made.serde, _splits_lists(made.serde))
        return made

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Returns a checkpoint as `get_tuple`, without blocking the loop."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Lists checkpoints as `list`, without blocking the loop."""
        listing = await asyncio.to_thread(self._listing, config, filter, before, limit)
        while (found := await asyncio.to_thread(next, listing, None)) is not None:
            yield _listed(found)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint as `put`. The loop is woken when it is on the disk; no thread waits for that."""
        thread, namespace, parent = _place(config)
        made = get_checkpoint_metadata(config, metadata)
        loop = asyncio.get_running_loop()
        stored = asyncio.Event()
        put = self._saver.submit_put(
            thread,
            namespace,
            parent,
            cast("dict[str, Any]", checkpoint),
            made,
            new_versions,
            isinstance(parent, _AskedId),
            lambda: loop.call_soon_threadsafe(stored.set),
        )
        await _ended(put, stored)
        return _config(thread, namespace, checkpoint["id"])

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Stores writes of a task as `put_writes`."""
        self.put_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Deletes a thread as `delete_thread`, without blocking the loop."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes the checkpoints of runs as `delete_for_runs`, without blocking the loop."""
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies a thread as `copy_thread`, without blocking the loop."""
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prunes threads as `prune`, without blocking the loop."""
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Returns the histories of channels as `get_delta_channel_history`, without blocking the loop."""
        return await asyncio.to_thread(self.get_delta_channel_history, config=config, channels=channels)

    def _listing(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> _Listing:
        given: dict[str, Any] = config["configurable"] if config else {}
        thread = given.get("thread_id")
        return self._saver.list(
            None if thread is None else str(thread),
            given.get("checkpoint_ns"),
            get_checkpoint_id(config) if config else None,
            filter,
            get_checkpoint_id(before) if before else None,
            limit,
        )


async def _ended(put: _Put, stored: asyncio.Event) -> None:
    """Waits for a put."""
    while not put.poll():
        await stored.wait()
        stored.clear()


def _splits_lists(serde: SerializerProtocol) -> bool:
    # A subclass may encode an array in another way than its items.
    return type(serde) is JsonPlusSerializer


def _place(config: RunnableConfig) -> tuple[str, str, str | None]:
    given = config["configurable"]
    return str(given["thread_id"]), given.get("checkpoint_ns") or "", get_checkpoint_id(config) or None


def _config(thread: str, namespace: str, checkpoint: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint}}


def _tuple(
    config: RunnableConfig,
    thread: str,
    namespace: str,
    checkpoint: dict[str, Any],
    metadata: dict[str, Any],
    parent: str | None,
    writes: list[tuple[str, str, Any]],
) -> CheckpointTuple:
    return CheckpointTuple(
        config,
        cast(Checkpoint, checkpoint),
        cast(CheckpointMetadata, metadata),
        _config(thread, namespace, _AskedId(parent)) if parent else None,
        writes,
    )


def _listed(found: Any) -> CheckpointTuple:
    thread, namespace, id, checkpoint, metadata, parent, writes = found
    return _tuple(_config(thread, namespace, _AskedId(id)), thread, namespace, checkpoint, metadata, parent, writes)
