"""The store and the cache for LangGraph."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.store.base", reason="langgraph-checkpoint is not installed")

import vectors
from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp

import annals
from annals.langgraph import AnnalsCache, AnnalsStore


@pytest.mark.parametrize("kind, count", [("store", 197), ("cache", 25)])
def test_every_vector_has_the_required_outcomes(kind: str, count: int, tmp_path: Path) -> None:
    ran, failed = 0, []
    for at, (file, case) in enumerate(vectors.cases(vectors.FOLDER, kind)):
        ran += 1
        for path in (None, tmp_path / f"{at}.db"):
            if (reason := vectors.problem(kind, case, path)) is not None:
                failed.append(f"{file}: {case['name']} ({'file' if path else 'memory'}): {reason}")
    assert failed == []
    assert ran == count, "cases were added or removed"


def test_a_wrong_outcome_is_found() -> None:
    case = {
        "ops": [{"op": "set", "entries": [[["n"], "k", 1, None]]}, {"op": "get", "keys": [[["n"], "k"]]}],
        "expected": [{"ok": None}, {"ok": [[["n"], "k", 1.0]]}],
    }
    assert vectors.problem("cache", case, None) == "op 1 (get): $[0][2]: expected 1.0, got 1"


def test_the_asynchronous_calls_run_a_coroutine_of_their_loop(store: annals.Store) -> None:
    threads: set[int] = set()

    async def embed(texts: list[str]) -> list[list[float]]:
        await asyncio.sleep(0)
        threads.add(threading.get_ident())
        return vectors.letters(26)(texts)

    async def run() -> None:
        memory = AnnalsStore(store, index={"dims": 26, "embed": embed, "fields": ["text"]})
        await asyncio.gather(
            *(memory.aput(("facts",), str(at), {"text": text}) for at, text in enumerate(["a banana", "plums", "bandana"]))
        )
        found = await memory.asearch(("facts",), query="bananas", limit=2)
        assert [item.key for item in found] == ["0", "2"] and found[0].score and found[0].score > 0.9
        assert await memory.alist_namespaces() == [("facts",)]
        await memory.adelete(("facts",), "0")
        assert await memory.aget(("facts",), "0") is None
        cache: AnnalsCache[Any] = AnnalsCache(store)
        await cache.aset({(("n",), "k"): ({"a": (1, {2})}, None)})
        assert await cache.aget([(("n",), "k"), (("n",), "none")]) == {(("n",), "k"): {"a": [1, {2}]}}
        await cache.aclear()
        assert await cache.aget([(("n",), "k")]) == {}

    asyncio.run(run())
    assert threads == {threading.get_ident()}


def test_a_batch_reads_before_it_writes(store: annals.Store) -> None:
    memory = AnnalsStore(store)
    memory.put(("a",), "k", {"n": 1})
    results = memory.batch([PutOp(("a",), "k", {"n": 2}), GetOp(("a",), "k"), PutOp(("a",), "k", {"n": 3})])
    assert results[0] is results[2] is None
    assert getattr(results[1], "value") == {"n": 1} and getattr(memory.get(("a",), "k"), "value") == {"n": 3}
    with pytest.raises(InvalidNamespaceError):
        memory.batch([PutOp(("a",), "l", {}), GetOp(("a.b",), "k")])
    assert memory.get(("a",), "l") is None, "a batch with a bad label runs nothing"


def test_a_path_is_opened(tmp_path: Path) -> None:
    AnnalsStore(tmp_path / "a.db").put(("a",), "k", {"n": 1})
    assert getattr(AnnalsStore(annals.Store(tmp_path / "a.db")).get(("a",), "k"), "value") == {"n": 1}


def test_a_graph_uses_both(store: annals.Store) -> None:
    graphs = pytest.importorskip("langgraph.graph", reason="langgraph is not installed")
    from langgraph.runtime import Runtime
    from langgraph.types import CachePolicy
    from typing_extensions import TypedDict

    class State(TypedDict):
        n: int

    calls = []

    def remember(state: State, runtime: Runtime[None]) -> dict[str, int]:
        calls.append(state["n"])
        assert runtime.store is not None
        runtime.store.put(("numbers",), str(state["n"]), {"square": state["n"] ** 2})
        return {"n": state["n"] + 1}

    builder = graphs.StateGraph(State)
    builder.add_node("remember", remember, cache_policy=CachePolicy(ttl=60))
    builder.add_edge("__start__", "remember")
    graph = builder.compile(store=AnnalsStore(store), cache=AnnalsCache(store))
    assert [graph.invoke({"n": n})["n"] for n in (1, 2, 1)] == [2, 3, 2]
    assert calls == [1, 2], "the third result is cached"
    assert getattr(AnnalsStore(store).get(("numbers",), "2"), "value") == {"square": 4}
