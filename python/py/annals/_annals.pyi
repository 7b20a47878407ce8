"""The extension module of `annals`. The docstrings are those of the module: `python stubs.py` copies them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from types import EllipsisType, TracebackType
from typing import Any, Final, TypeAlias, final

__all__ = [
    "Blame",
    "Cache",
    "CheckReport",
    "Diff",
    "Extension",
    "History",
    "Kv",
    "KvItem",
    "ManualClock",
    "Operation",
    "SearchHit",
    "Snapshot",
    "Store",
    "Table",
    "TextChange",
    "Thread",
    "ThreadInfo",
    "ValueVersion",
    "_Iterator",
    "_Listing",
    "_Put",
    "_Saver",
    "_end_wakes",
    "__version__",
    "run_command",
]

_Expected: TypeAlias = Snapshot | str | EllipsisType | None

__version__: Final[str]

def _end_wakes() -> None:
    """Waits until no loop is being woken, and wakes none from then on."""
def run_command(arguments: Sequence[str]) -> int:
    """Runs the command `annals` with these arguments, of which the first is the name of the program."""
@final
class Extension:
    """A MessagePack extension: the value of another program, as it is stored."""
    def __new__(cls, code: int, data: bytes) -> Extension: ...
    @property
    def code(self) -> int:
        """The type, from -128 to 127."""
    @property
    def data(self) -> bytes:
        """The bytes."""
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class ManualClock:
    """A clock for tests: it stands still until it is advanced."""
    def __new__(cls, start: datetime | None = None) -> ManualClock: ...
    def advance(self, seconds: float) -> None:
        """Moves the clock."""
    def now(self) -> datetime:
        """Returns its time, in UTC."""

@final
class Store:
    """One file of threads, the tables of a PostgreSQL server, or a store in memory."""
    def __new__(
        cls,
        path: str | PathLike[str],
        *,
        key: bytes | None = None,
        read_only: bool = False,
        create: bool = True,
        busy_timeout: float = 5.0,
        durable: bool = True,
        network_file_system: bool = False,
        actor: str | None = None,
        clock: ManualClock | None = None,
    ) -> Store: ...
    @staticmethod
    def memory(*, actor: str | None = None, clock: ManualClock | None = None) -> Store:
        """Makes a store in memory, which is gone when it is closed."""
    @property
    def path(self) -> Path | None:
        """The path of the file; `None` in memory and on a server."""
    def close(self) -> None:
        """Closes the store. The file stays open as long as a thread, a snapshot or an iterator of it is there."""
    def __enter__(self) -> Store: ...
    def __exit__(
        self,
        *_exception: type[BaseException] | BaseException | TracebackType | None,
    ) -> None: ...
    def thread(self, id: str) -> Thread:
        """Returns the thread with an id. It need not exist: its first write makes it."""
    def threads(
        self,
        *,
        status: str | None = None,
        project: str | None = None,
        label: str | None = None,
        title: str | None = None,
        graph: str | None = None,
        archived: bool | None = None,
        pinned: bool | None = None,
        trashed: bool | None = None,
        since: datetime | None = None,
        by_id: bool = False,
    ) -> Iterator[ThreadInfo]:
        """Returns the threads that fit, newest activity first or by id; those that are archived or in the trash
        only if asked for. `title` is a part of the title, `since` the least time of the last activity.
        """
    def at(self, point: str) -> Snapshot:
        """Returns the checkpoint at a point: `trip`, `trip~2`, `trip@{yesterday}`. Raises `NotFoundError`."""
    def diff(self, range: str) -> Diff:
        """Compares two points: `trip~2..trip`, or `trip` with the checkpoint before it."""
    def search(
        self,
        text: str,
        *,
        thread: str | None = None,
        role: str | None = None,
        node: str | None = None,
        channel: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        on_head: bool = False,
        limit: int | None = None,
    ) -> Iterator[SearchHit]:
        """Returns the items and values, newest first, whose text holds every word, in all threads and branches;
        with `on_head` only those that the head of their thread shows. Without an index (`enable_search`) the
        whole file is read.
        """
    def enable_search(self) -> None:
        """Makes an index of the texts, which makes searches quick."""
    def disable_search(self) -> None:
        """Removes the index."""
    def sql(self, query: str, parameters: Sequence[Any] | None = None) -> Table:
        """Runs a query on the tables and views of the file, for reading only. Parameters stand for `?`."""
    def check(self, since: str | None = None) -> CheckReport:
        """Verifies the whole file, or what came after the point at which an earlier check ended
        (`CheckReport.up_to`).
        """
    def backup(self, path: str | PathLike[str]) -> None:
        """Copies the store to a new file, at one moment, while others write."""
    def compact(self) -> None:
        """Gives unused space in the file back to the file system."""
    def stats(self) -> dict[str, int]:
        """Returns `format`, `page_bytes`, `file_bytes`, `wal_bytes` and `erasing`; zeros in memory."""
    def kv(
        self,
        *,
        index: dict[str, Any] | None = None,
        default_ttl: float | None = None,
        refresh_on_read: bool = False,
        retain_expired: bool = False,
    ) -> Kv:
        """Returns the key-value memory. `index` makes searches by meaning: a dict with `dims`, `embed`, a
        function of a list of texts, and perhaps
        `fields` and `embed_query`, a function of a text. `default_ttl` is in seconds.
        """
    def cache(self) -> Cache:
        """Returns the cache."""

@final
class Thread:
    """The history of one conversation or workflow."""
    @property
    def id(self) -> str:
        """The id."""
    @property
    def namespace(self) -> str:
        """The namespace of the subgraph; empty for the outermost graph."""
    @property
    def actor(self) -> str | None:
        """The actor of the writes through this handle."""
    def by(self, actor: str) -> Thread:
        """Returns the thread with another actor, who is recorded with each write."""
    def in_namespace(self, path: str) -> Thread:
        """Returns the history of a subgraph of the thread."""
    def exists(self) -> bool:
        """Returns whether the thread has a checkpoint."""
    def head(self) -> Snapshot | None:
        """Returns the newest checkpoint, `None` if there is none."""
    def at(self, point: str) -> Snapshot:
        """Returns the checkpoint at a point: an id or its beginning, `~2` (two before the head), `@{yesterday}`,
        a name of a branch. Raises `NotFoundError`.
        """
    def info(self) -> ThreadInfo:
        """Returns what a listing shows of the thread. Raises `NotFoundError` if it has no checkpoint."""
    def history(
        self,
        *,
        before: str | None = None,
        limit: int | None = None,
        source: str | None = None,
        step: int | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> History:
        """Returns its checkpoints, newest first, those of abandoned branches included: before an id, at most
        `limit`, of a source, a step, or with members of the metadata. They are read page by page, anew for
        each iteration.
        """
    def append(
        self,
        channel: str,
        items: Iterable[Any],
        *,
        expect: _Expected = ...,
        metadata: dict[str, Any] | None = None,
        on_conflict: str = "error",
    ) -> str:
        """Appends values to a list channel in one commit. Returns the id of the new checkpoint when it is on the
        disk.

        With `expect`, a `Snapshot`, an id, or `None` for a thread without checkpoints, the write is refused
        with `ConflictError` if the head is another one; with `on_conflict="branch"` it is then stored as a
        branch off that head.
        """
    def append_messages(
        self,
        messages: Iterable[Any],
        *,
        channel: str = "messages",
        expect: _Expected = ...,
        metadata: dict[str, Any] | None = None,
        usage: dict[str, Any] | None = None,
        on_conflict: str = "error",
    ) -> str:
        """Appends messages to a channel: messages of LangChain, dicts in its format or in that of OpenAI, pairs
        of role and text, or texts of a human. A message with a known id replaces that message. `usage` has
        `input_tokens`, `output_tokens`, `cost_usd` and `model` of the model call. All else is as in `append`.
        """
    def set(
        self,
        channel: str,
        value: Any,
        *,
        expect: _Expected = ...,
        metadata: dict[str, Any] | None = None,
        on_conflict: str = "error",
    ) -> str:
        """Sets a channel that holds one value. All else is as in `append`."""
    def update(
        self,
        *,
        set: dict[str, Any] | None = None,
        append: dict[str, Any] | None = None,
        messages: dict[str, Any] | None = None,
        put: dict[str, Any] | None = None,
        remove: dict[str, Any] | None = None,
        text: dict[str, Any] | None = None,
        expect: _Expected = ...,
        metadata: dict[str, Any] | None = None,
        on_conflict: str = "error",
    ) -> str:
        """Writes several channels in one commit: sets values, appends values, messages or text, puts entries of
        maps, or removes keys of maps. All else is as in `append`.
        """
    def compact(
        self,
        summary: Iterable[Any],
        *,
        channel: str = "messages",
        keep_first: int = 0,
        keep_last: int = 0,
        of: Snapshot | None = None,
        usage: dict[str, Any] | None = None,
    ) -> str:
        """Folds messages of a channel under a summary, messages as in `append_messages`, in one commit. Returns the
        id of the new checkpoint when it is on the disk. The list stays; `Snapshot.model_view` shows it with the
        summary in place of the folded messages. Of the list the first `keep_first` and the last `keep_last`
        messages stay, and a result of a tool stays with its call. `of` is the state of which the summary was
        made: what was appended since stays. A later compaction takes the place of this one, and `undo` goes back
        to the state before.

        Raises `InvalidError` if no message would be folded, or if the head does not continue `of`;
        `ConflictError` if another compaction was made since `of`.
        """
    def undo(self) -> Operation | None:
        """Undoes the last operation of the thread: the head moves back, and nothing is erased. Returns the
        operation; `None` if there is none left.
        """
    def redo(self) -> Operation | None:
        """Makes the operation again that was undone last. Returns it; `None` if there is none."""
    def operations(self) -> Iterator[Operation]:
        """Returns the operations of the thread, newest first."""
    def rewind(self, to: Snapshot) -> None:
        """Moves the head to an earlier checkpoint. What came after it stays as a branch."""
    def branches(self) -> list[tuple[str | None, Snapshot, bool]]:
        """Returns the branches: the name if it has one, the last checkpoint, and whether it is the current one."""
    def fork(self, thread: str) -> Thread:
        """Starts a new thread with the state of the head. Nothing is copied. Raises `ConflictError` if it exists."""
    def copy(self, thread: str) -> Thread:
        """Copies the thread with all its checkpoints, under their ids, into a new thread."""
    def delete(self) -> None:
        """Deletes the thread. It is erased from the file in steps. A thread from which another one was forked is
        not deleted.
        """
    def set_facts(
        self,
        *,
        title: str | None = None,
        project: str | None = None,
        add_labels: Sequence[str] | None = None,
        remove_labels: Sequence[str] | None = None,
        archived: bool | None = None,
        pinned: bool | None = None,
    ) -> None:
        """States facts: a title or a project (an empty text removes it), labels, archived, pinned. `None` leaves
        one as it is.
        """
    def import_messages(
        self,
        source: str | bytes | PathLike[str],
        format: str = "langchain",
        *,
        channel: str = "messages",
    ) -> int:
        """Makes the thread of a document of messages, a text, bytes or a path, in the format `langchain`,
        `openai` or `pydantic-ai`. Returns their number. Raises `ConflictError` if the thread exists.
        """
    def _append_pydantic_ai(
        self,
        document: bytes,
        *,
        channel: str = "messages",
        expect: _Expected = ...,
        metadata: dict[str, Any] | None = None,
        on_conflict: str = "error",
    ) -> str: ...
    def to_pandas(self) -> Any:
        """Returns the history as a data frame, newest checkpoint first. Needs pandas."""
    def _repr_html_(self) -> str: ...

@final
class History:
    """The checkpoints of a thread, newest first: each iteration reads them anew, page by page."""
    def __iter__(self) -> Iterator[Snapshot]: ...
    def to_pandas(self) -> Any:
        """Returns the checkpoints as a data frame. Needs pandas."""
    def _repr_html_(self) -> str: ...

@final
class Snapshot:
    """The state at one checkpoint. Its values are read when they are asked for."""
    @property
    def id(self) -> str:
        """The id of the checkpoint."""
    @property
    def thread(self) -> str:
        """The id of the thread."""
    @property
    def namespace(self) -> str:
        """The namespace of the subgraph; empty for the outermost graph."""
    @property
    def step(self) -> int:
        """The number of the superstep."""
    @property
    def source(self) -> str:
        """`input`, `loop`, `update` or `fork`."""
    @property
    def created_at(self) -> datetime:
        """The time of the checkpoint, in UTC."""
    @property
    def run(self) -> str | None:
        """The id of the run that made it."""
    @property
    def next(self) -> list[str]:
        """The nodes whose tasks were due after it."""
    @property
    def metadata(self) -> dict[str, Any]:
        """Its further metadata."""
    def short_id(self) -> str:
        """Returns the shortest beginning of the id that stays unique in the thread."""
    def parent(self) -> Snapshot | None:
        """Returns the checkpoint it builds on; `None` for the first one."""
    def channels(self) -> list[str]:
        """Returns the names of the channels that hold something."""
    def values(self) -> dict[str, Any]:
        """Returns the values of all channels that hold something."""
    def get(self, channel: str, default: Any = None) -> Any:
        """Returns the value of a channel, or the default if it holds nothing."""
    def __getitem__(self, channel: str, /) -> Any:
        """Return self[key]."""
    def items(
        self,
        channel: str = "messages",
        *,
        last: int | None = None,
        start: int | None = None,
        stop: int | None = None,
    ) -> list[Any]:
        """Returns items of a list channel, oldest first: all, the last ones, or those at the positions from
        `start` to `stop`. Only these are read.
        """
    def model_view(self, channel: str = "messages") -> list[dict[str, Any]]:
        """Returns the messages of a channel as a model sees them: the first ones that stay, the summary of those that
        `Thread.compact` has folded, and the last ones. Only these are read. Without a compaction they are all
        messages.
        """
    def length(self, channel: str) -> int:
        """Returns the number of items of a list, of entries of a map, or of parts of a text, without reading them."""
    def entry(self, channel: str, key: str) -> Any:
        """Returns the value at a key of a map channel; `None` if it has no such key. Only the entry is read."""
    def find_messages(
        self,
        text: str | None = None,
        *,
        channel: str = "messages",
        role: str | None = None,
        id: str | None = None,
        name: str | None = None,
        tool_call: str | None = None,
    ) -> list[dict[str, Any]]:
        """Returns the messages of a channel that fit: their text holds `text`, and role, id, name and tool call
        are those given.
        """
    def interrupts(self) -> list[Any]:
        """Returns the values of the open interrupts."""
    def diff(self, after: Snapshot) -> Diff:
        """Compares the state with a later one."""
    def blame(
        self,
        channel: str,
        *,
        item: str | None = None,
        key: str | None = None,
        position: int | None = None,
        path: str | None = None,
    ) -> Blame | None:
        """Returns the writer of the value of a channel, of an item of a list (by id or position), of an entry of
        a map (by key), or of a part of a value (by JSON Pointer). Returns `None` if there is nothing.
        """
    def evolution(
        self,
        channel: str,
        *,
        item: str | None = None,
        key: str | None = None,
    ) -> Iterator[ValueVersion]:
        """Returns the values of a channel, an item or an entry over time, newest first."""
    def pickaxe(self, text: str) -> list[TextChange]:
        """Returns the changes by which a text appears or disappears on the lineage of this checkpoint, oldest
        first.
        """
    def fork(self, thread: str) -> Thread:
        """Starts a new thread with the state of this checkpoint. Nothing is copied. Raises `ConflictError` if it
        exists.
        """
    def export(
        self,
        format: str = "langchain",
        *,
        channel: str = "messages",
        lines: bool = False,
        path: str | PathLike[str] | None = None,
    ) -> str | None:
        """Returns the messages of a channel in a format: `langchain`, `openai`, `pydantic-ai` (lists of JSON, or
        JSON lines with `lines`) or `markdown`. With `path` they are written to a new file, and `None` is
        returned.
        """
    def to_pandas(self, channel: str = "messages") -> Any:
        """Returns the items of a list channel as a data frame. Needs pandas."""
    def _repr_html_(self) -> str: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Diff:
    """The difference of two checkpoints, channel by channel."""
    @property
    def unchanged(self) -> int:
        """The number of channels that are equal."""
    @property
    def channels(self) -> dict[str, dict[str, Any]]:
        """The channels that differ, by name. Each is a dict with `kind`: `added` (with `after`), `removed` (with
        `before`), `changed` (with both), `items` of a list, `entries` of a map, or `appended` to a text (with
        `text`). An item is a dict with `kind` (`added`, `removed`, `edited`, `moved`), its indexes `from` and
        `to`, and the values `before` and `after`.
        """
    def __bool__(self) -> bool: ...
    def _repr_html_(self) -> str: ...

@final
class Table:
    """The rows of a query."""
    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows."""
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...
    def to_pandas(self) -> Any:
        """Returns the rows as a data frame. Needs pandas."""
    def _repr_html_(self) -> str: ...

@final
class ThreadInfo:
    """A thread as a listing shows it."""
    @property
    def id(self) -> str:
        """The id of the thread."""
    @property
    def head(self) -> str:
        """The id of its head."""
    @property
    def step(self) -> int:
        """The number of the superstep that made the head."""
    @property
    def title(self) -> str | None:
        """Its title."""
    @property
    def project(self) -> str | None:
        """The project that it belongs to."""
    @property
    def labels(self) -> list[str]:
        """Its labels, sorted."""
    @property
    def is_archived(self) -> bool:
        """True if it is archived."""
    @property
    def is_pinned(self) -> bool:
        """True if it is pinned."""
    @property
    def is_paused(self) -> bool:
        """True if workers pass it over."""
    @property
    def status(self) -> str:
        """`done`, `running`, `interrupted`, `failed`, `sleeping`, `cancelled` or `stuck`."""
    @property
    def error(self) -> str | None:
        """The message of a failed or stuck thread, the reason of a cancelled one."""
    @property
    def interrupts(self) -> list[Any]:
        """The values of its open interrupts."""
    @property
    def graph(self) -> str | None:
        """The name of its graph."""
    @property
    def priority(self) -> int:
        """The priority of its run, 0 to 9."""
    @property
    def updated_at(self) -> datetime:
        """The time of its newest checkpoint, in UTC."""
    @property
    def messages(self) -> int | None:
        """The number of messages at the head; `None` if rows are damaged."""
    @property
    def input_tokens(self) -> int | None:
        """Tokens that its model calls read."""
    @property
    def output_tokens(self) -> int | None:
        """Tokens that its model calls wrote."""
    @property
    def cost_usd(self) -> float | None:
        """The stated costs of its model calls in US dollars."""

@final
class Blame:
    """The writer of a value."""
    @property
    def thread(self) -> str:
        """The thread that holds the checkpoint."""
    @property
    def checkpoint(self) -> str:
        """The id of the checkpoint."""
    @property
    def step(self) -> int:
        """The number of the superstep that made the checkpoint."""
    @property
    def source(self) -> str:
        """`input`, `loop`, `update` or `fork`."""
    @property
    def created_at(self) -> datetime:
        """The time of the checkpoint, in UTC."""
    @property
    def node(self) -> str | None:
        """The node that wrote it; `None` of an input or an update."""
    @property
    def task(self) -> str | None:
        """The id of the task that wrote it."""
    @property
    def version(self) -> int | None:
        """The version of the channel; `None` of an item."""
    @property
    def is_pruned(self) -> bool:
        """True if the state at the checkpoint cannot be read any more."""
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...

@final
class ValueVersion:
    """A value at one time."""
    @property
    def value(self) -> Any:
        """The value; `None` as well if it was removed."""
    @property
    def is_removed(self) -> bool:
        """True if the channel was emptied, or the item removed."""
    @property
    def blame(self) -> Blame:
        """The writer of the value."""

@final
class TextChange:
    """A change of the state by which a text appears, or disappears."""
    @property
    def appears(self) -> bool:
        """True if the text appears, false if it disappears."""
    @property
    def channel(self) -> str:
        """The channel."""
    @property
    def item(self) -> str | None:
        """The id of the item that holds or held the text."""
    @property
    def position(self) -> int | None:
        """The position of the item in its list."""
    @property
    def blame(self) -> Blame:
        """The writer of the change."""

@final
class Operation:
    """An operation of a thread."""
    @property
    def name(self) -> str:
        """`run`, `update`, `fork`, `rewind`, `undo` and the like."""
    @property
    def at(self) -> datetime:
        """Its time, in UTC."""
    @property
    def actor(self) -> str | None:
        """The user or the program that made it, if it is known."""

@final
class SearchHit:
    """An item, or a value, that a search found."""
    @property
    def thread(self) -> str:
        """The thread."""
    @property
    def checkpoint(self) -> str:
        """The id of the checkpoint that put it."""
    @property
    def created_at(self) -> datetime:
        """The time of the checkpoint, in UTC."""
    @property
    def channel(self) -> str:
        """The channel."""
    @property
    def position(self) -> int:
        """The position of the item in its list."""
    @property
    def key(self) -> str | None:
        """The key of an entry of a map."""
    @property
    def role(self) -> str | None:
        """The type of a message."""
    @property
    def id(self) -> str | None:
        """The id of the item."""
    @property
    def name(self) -> str | None:
        """The name of the author."""
    @property
    def node(self) -> str | None:
        """The node that wrote it."""
    @property
    def is_on_head(self) -> bool:
        """True if the head of the thread still shows it."""
    @property
    def is_partial(self) -> bool:
        """True for a message whose stream was cut off."""
    @property
    def text(self) -> str:
        """The text around the first match."""
    def marked(self, before: str = "**", after: str = "**") -> str:
        """Returns the text with marks around each match."""
    def snapshot(self) -> Snapshot:
        """Returns the state at the checkpoint that put it."""

@final
class CheckReport:
    """The report of a check."""
    @property
    def is_sound(self) -> bool:
        """True if no problem was found."""
    @property
    def problems(self) -> list[str]:
        """The problems: number of the invariant, place and reason of each."""
    @property
    def threads(self) -> int:
        """Threads that were checked."""
    @property
    def checkpoints(self) -> int:
        """Checkpoints whose checksum was verified."""
    @property
    def values(self) -> int:
        """Values whose checksum was verified."""
    @property
    def entries(self) -> int:
        """Entries of the key-value memory and of the cache that were verified."""
    @property
    def up_to(self) -> str | None:
        """The point at which the check ended, for `Store.check(since=...)`; `None` after a problem."""

@final
class KvItem:
    """An entry of the key-value memory."""
    @property
    def namespace(self) -> tuple[str, ...]:
        """The labels of its namespace."""
    @property
    def key(self) -> str:
        """Its key."""
    @property
    def value(self) -> dict[str, Any]:
        """The value."""
    @property
    def created_at(self) -> datetime:
        """The time of the first put, in UTC."""
    @property
    def updated_at(self) -> datetime:
        """The time of the last put, in UTC."""
    @property
    def expires_at(self) -> datetime | None:
        """The time from which on it counts as absent."""
    @property
    def score(self) -> float | None:
        """The cosine similarity in a search by meaning."""

@final
class Kv:
    """The key-value memory of a store."""
    def get(self, namespace: Sequence[str], key: str, *, refresh_ttl: bool | None = None) -> KvItem | None:
        """Returns the entry under a key, `None` if there is none. `refresh_ttl` begins its lifetime anew."""
    def put(
        self,
        namespace: Sequence[str],
        key: str,
        value: dict[str, Any],
        *,
        ttl: float | EllipsisType | None = ...,
        index: Sequence[str] | bool | None = ...,
    ) -> None:
        """Stores a dict under a key, in place of one that is there. `ttl` is in seconds, `None` lets it stay.
        `index` names the fields that are embedded, `False` none.
        """
    def delete(self, namespace: Sequence[str], key: str) -> None:
        """Removes a key, if it is there."""
    def search(
        self,
        prefix: Sequence[str] = ...,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        newest_first: bool = False,
        refresh_ttl: bool | None = None,
    ) -> list[KvItem]:
        """Returns the entries whose namespace begins with these labels and whose members fit the filter:
        `{"age": {"$gte": 18}}`. With `query` the nearest in meaning come first; else the first put, or with
        `newest_first` the last one.
        """
    def list_namespaces(
        self,
        *,
        prefixes: Sequence[Sequence[str]] = ...,
        suffixes: Sequence[Sequence[str]] = ...,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[list[str]]:
        """Returns the namespaces that begin with a prefix and end with a suffix, in which `*` stands for any
        label.
        """
    def sweep(self) -> int:
        """Removes the entries that have expired, and returns their number."""
    def write_all(
        self,
        writes: Sequence[
            tuple[
                Sequence[str], str, dict[str, Any] | None, float | EllipsisType | None, Sequence[str] | bool | None
            ]
        ],
    ) -> None:
        """Makes several writes in one commit: tuples of labels, key, value (`None` removes the key), `ttl`
        (`...` for the default) and `index`.
        """

@final
class Cache:
    """The cache of a store."""
    def get(self, keys: Sequence[tuple[Sequence[str], str]]) -> list[Any]:
        """Returns the values under keys, each of which is a pair of labels and key; `None` where there is none."""
    def put(self, namespace: Sequence[str], key: str, value: Any, *, ttl: float | None = None) -> None:
        """Stores a value under a key. `ttl` is in seconds."""
    def clear(self, namespaces: Sequence[Sequence[str]] | None = None) -> None:
        """Removes the values of some namespaces, or all."""

@final
class _Iterator:
    """An iterator over what is read."""
    def __iter__(self) -> _Iterator: ...
    def __next__(self) -> Any: ...

@final
class _Listing:
    """The checkpoints of a listing. Nothing of the store is locked between two of them."""
    def __iter__(self) -> _Listing: ...
    def __next__(self) -> Any: ...

@final
class _Put:
    """A put that was submitted."""
    def poll(self) -> bool:
        """Returns whether the put is stored; if it is not, the function to wake is called once it can be asked again. Raises
        the error of a put that was refused.
        """

@final
class _Saver:
    """A saver of LangGraph on a store."""
    def __new__(
        cls,
        store: Store,
        serde: Any,
        splits_lists: bool,
        frozen: Sequence[type],
        models: Sequence[type],
        on_conflict: str,
    ) -> _Saver: ...
    def with_serde(self, serde: Any, splits_lists: bool) -> _Saver:
        """Returns the same saver with another serializer."""
    def put(
        self,
        thread: str,
        namespace: str,
        parent: str | None,
        checkpoint: dict[str, Any],
        metadata: Any,
        new_versions: dict[str, Any],
        is_asked: bool,
    ) -> None:
        """Stores a checkpoint, and returns when it is on the disk."""
    def submit_put(
        self,
        thread: str,
        namespace: str,
        parent: str | None,
        checkpoint: dict[str, Any],
        metadata: Any,
        new_versions: dict[str, Any],
        is_asked: bool,
        wake: Callable[[], object],
    ) -> _Put:
        """Submits a checkpoint. Returns the put, which is ended when `wake` was called."""
    def get(
        self, thread: str, namespace: str, checkpoint: str | None
    ) -> tuple[str, dict[str, Any], dict[str, Any], str | None, list[tuple[str, str, Any]]] | None:
        """Returns a checkpoint: the one with an id, or the newest one; `None` if there is none."""
    def list(
        self,
        thread: str | None,
        namespace: str | None,
        checkpoint: str | None,
        filter: dict[str, Any] | None,
        before: str | None,
        limit: int | None,
    ) -> _Listing:
        """Lists checkpoints, the greatest id first."""
    def delta_history(
        self, thread: str, namespace: str, checkpoint: str | None, channels: Sequence[str]
    ) -> Sequence[tuple[str, Any, Sequence[Any]]]:
        """Returns for each channel its writes on the way from an ancestor, and the value there in a list, if it has one."""
    def put_writes(
        self,
        thread: str,
        namespace: str,
        checkpoint: str,
        writes: Sequence[tuple[str, Any]],
        task: str,
        path: str,
    ) -> None:
        """Stores writes of a task."""
    def flush(self) -> None:
        """Stores the buffered writes."""
    def delete_thread(self, thread: str) -> None: ...
    def copy_thread(self, source: str, target: str) -> None: ...
    def delete_for_runs(self, runs: Sequence[str]) -> None: ...
    def prune(self, threads: Sequence[str], strategy: str) -> None: ...
    def next_version(self, current: Any) -> Any: ...
