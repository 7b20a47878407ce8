"""A checkpoint saver, a store and a cache for LangGraph in one store of `annals`.

    from annals.langgraph import AnnalsCache, AnnalsSaver, AnnalsStore

    graph = builder.compile(
        checkpointer=AnnalsSaver("chat.db"), store=AnnalsStore("chat.db"), cache=AnnalsCache("chat.db")
    )

All take the path of a file, the URL of a PostgreSQL server (`postgres://app@db.example/annals`) or an `annals.Store`,
so that they share one.
"""

from annals.langgraph._cache import AnnalsCache
from annals.langgraph._saver import AnnalsSaver
from annals.langgraph._store import AnnalsStore

__all__ = ["AnnalsCache", "AnnalsSaver", "AnnalsStore"]
