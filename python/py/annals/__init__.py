"""History for agents: threads, forks, time travel and search in one SQLite file.

A `Store` is one file, a `Thread` the history of one conversation or workflow in it, a `Snapshot` the state at one of
its checkpoints. Values are those of JSON, with `bytes` and integers of any size.

    import annals

    with annals.Store("chat.db") as store:
        thread = store.thread("alice")
        thread.append_messages([("human", "A hotel in Bern?"), ("ai", "The Gasthof Post.")])
        print(thread.head()["messages"][-1]["content"])

`annals.langgraph` has a store and a cache for LangGraph, `annals.pydantic_ai` keeps the message history of an agent of
PydanticAI. Both need their library, and nothing else here does.
"""

from annals._annals import (
    Blame,
    Cache,
    CheckReport,
    Diff,
    Extension,
    History,
    Kv,
    KvItem,
    ManualClock,
    Operation,
    SearchHit,
    Snapshot,
    Store,
    Table,
    TextChange,
    Thread,
    ThreadInfo,
    ValueVersion,
    __version__,
)
from annals.errors import (
    BusyError,
    ConflictError,
    CorruptError,
    Error,
    FormatError,
    IntegerSizeError,
    InvalidError,
    NotFoundError,
    OutcomeUnknownError,
    SchemaChangedError,
    StorageError,
    UnsupportedError,
    ValueTypeError,
)

__all__ = [
    "Blame",
    "BusyError",
    "Cache",
    "CheckReport",
    "ConflictError",
    "CorruptError",
    "Diff",
    "Error",
    "Extension",
    "FormatError",
    "History",
    "IntegerSizeError",
    "InvalidError",
    "Kv",
    "KvItem",
    "ManualClock",
    "NotFoundError",
    "Operation",
    "OutcomeUnknownError",
    "SchemaChangedError",
    "SearchHit",
    "Snapshot",
    "StorageError",
    "Store",
    "Table",
    "TextChange",
    "Thread",
    "ThreadInfo",
    "UnsupportedError",
    "ValueTypeError",
    "ValueVersion",
    "__version__",
]
