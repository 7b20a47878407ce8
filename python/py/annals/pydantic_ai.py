"""The message history of an agent of PydanticAI in a thread.

    from annals.pydantic_ai import MessageHistory

    history = MessageHistory(annals.Store("chat.db").thread("alice"))
    result = agent.run_sync("A hotel in Bern?", message_history=history.load())
    history.append(result)

A request or a response is stored as messages of the thread, so that `annals log`, search and blame work on it. They are
loaded as they were appended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, Protocol

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

from annals import Snapshot, Thread

__all__ = ["MessageHistory"]


class HasNewMessages(Protocol):
    """The result of a run of an agent."""

    def new_messages(self) -> list[ModelMessage]:
        """Returns the messages of the run."""


class MessageHistory:
    """The message history of one conversation.

    It can be used from several threads and processes: with `expect` an append that another one overtook is refused.
    """

    def __init__(self, thread: Thread, *, channel: str = "messages") -> None:
        """Takes a thread and the channel in which its messages are."""
        self.thread = thread
        self.channel = channel

    def load(self, at: Snapshot | str | None = None) -> list[ModelMessage]:
        """Returns the messages at a checkpoint, at a point of the thread (`~2`), or at the head.

        The list is that which `message_history` of a run takes. It is empty if the thread does not exist yet.
        """
        snapshot = self.thread.at(at) if isinstance(at, str) else at or self.thread.head()
        if snapshot is None or self.channel not in snapshot.channels():
            return []
        document = snapshot.export("pydantic-ai", channel=self.channel)
        return ModelMessagesTypeAdapter.validate_json(document or "[]")

    def append(
        self,
        messages: HasNewMessages | Sequence[ModelMessage],
        *,
        expect: Snapshot | str | EllipsisType | None = ...,
        metadata: dict[str, Any] | None = None,
        on_conflict: str = "error",
    ) -> str:
        """Appends the new messages of a result, or messages, in one commit. Returns the id of the checkpoint.

        With `expect` the append is refused with `ConflictError` if the head is another one: of two runs that began
        with the same history the second is told.
        """
        new = messages if isinstance(messages, Sequence) else messages.new_messages()
        document = ModelMessagesTypeAdapter.dump_json(list(new))
        return self.thread._append_pydantic_ai(
            document, channel=self.channel, expect=expect, metadata=metadata, on_conflict=on_conflict
        )

    def fork(self, thread: str, at: Snapshot | str | None = None) -> MessageHistory:
        """Starts a new thread with the messages at a checkpoint, at a point, or at the head. Nothing is copied."""
        snapshot = self.thread.at(at or "@") if isinstance(at, str | None) else at
        return MessageHistory(snapshot.fork(thread), channel=self.channel)

    def undo(self) -> bool:
        """Undoes the last append. Returns false if there is none left."""
        return self.thread.undo() is not None

    def redo(self) -> bool:
        """Makes the append again that was undone last. Returns false if there is none."""
        return self.thread.redo() is not None

    async def aload(self, at: Snapshot | str | None = None) -> list[ModelMessage]:
        """Returns the messages as `load`, without blocking the loop."""
        return await asyncio.to_thread(self.load, at)

    async def aappend(
        self,
        messages: HasNewMessages | Sequence[ModelMessage],
        *,
        expect: Snapshot | str | EllipsisType | None = ...,
        metadata: dict[str, Any] | None = None,
        on_conflict: str = "error",
    ) -> str:
        """Appends messages as `append`, without blocking the loop."""
        return await asyncio.to_thread(
            self.append, messages, expect=expect, metadata=metadata, on_conflict=on_conflict
        )
