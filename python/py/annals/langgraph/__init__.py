"""A store and a cache for LangGraph in one file of `annals`.

    from annals.langgraph import AnnalsCache, AnnalsStore

    graph = builder.compile(store=AnnalsStore("chat.db"), cache=AnnalsCache("chat.db"))

All take the path of a file or an `annals.Store`, so that they share one file with the threads in it.
"""

from annals.langgraph._cache import AnnalsCache
from annals.langgraph._store import AnnalsStore

__all__ = ["AnnalsCache", "AnnalsStore"]
