"""The store that a class for LangGraph is given."""

from __future__ import annotations

from os import PathLike

from annals import Store


def opened(store: Store | str | PathLike[str]) -> Store:
    """Returns a store as it is, and opens a path or a URL."""
    return store if isinstance(store, Store) else Store(store)
