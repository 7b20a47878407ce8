"""The databases of LangGraph's SQLite saver: imported, continued by LangGraph on this saver, and exported to it again."""

from __future__ import annotations

import json
import pathlib
import sqlite3
import subprocess
import sys

import pytest

pytest.importorskip("langgraph.graph", reason="langgraph is not installed")
SqliteSaver = pytest.importorskip(
    "langgraph.checkpoint.sqlite", reason="langgraph-checkpoint-sqlite is not installed"
).SqliteSaver

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage  # noqa: E402
from langgraph.graph import START, StateGraph  # noqa: E402
from langgraph.graph.message import add_messages  # noqa: E402
from typing_extensions import Annotated, TypedDict  # noqa: E402

import annals  # noqa: E402
from annals.langgraph import AnnalsSaver  # noqa: E402


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def graph(saver):
    builder = StateGraph(State)
    builder.add_node("model", lambda state: {"messages": [AIMessage(f"answer {len(state['messages'])}")]})
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=saver)


def say(saver, text: str) -> list[str]:
    config = {"configurable": {"thread_id": "chat"}}
    state = graph(saver).invoke({"messages": [HumanMessage(text)]}, config)
    return [message.content for message in state["messages"]]


def history(saver) -> list[dict]:
    config = {"configurable": {"thread_id": "chat"}}
    return [
        {
            "id": state.config["configurable"]["checkpoint_id"],
            "parent": (state.parent_config or {}).get("configurable", {}).get("checkpoint_id"),
            "values": state.values,
            "next": state.next,
            "metadata": state.metadata,
            "created_at": state.created_at,
            "tasks": [(task.id, task.name, task.error, task.result) for task in state.tasks],
        }
        for state in graph(saver).get_state_history(config)
    ]


def command(*arguments: object) -> dict:
    run = subprocess.run(
        [sys.executable, "-m", "annals", *map(str, arguments), "--json"], capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout)


def test_a_thread_goes_to_annals_and_back(tmp_path: pathlib.Path) -> None:
    old, store, new = tmp_path / "old.sqlite", tmp_path / "chat.db", tmp_path / "new.sqlite"
    with SqliteSaver.from_conn_string(str(old)) as saver:
        say(saver, "one")
        say(saver, "two")
        expected = history(saver)

    imported = command("import", old, "--from", "langgraph", "--store", store)
    assert imported["checkpoints"] == {"new": len(expected), "unchanged": 0}
    with AnnalsSaver(store) as saver:
        assert history(saver) == expected
        assert say(saver, "three")[-2:] == ["three", "answer 5"]
        expected = history(saver)
    with annals.Store(store) as opened:
        assert [hit.thread for hit in opened.search("three")] == ["chat"]

    exported = command("export", "chat", "--to", "langgraph-sqlite", "--out", new, "--store", store)
    assert exported["checkpoints"] == len(expected)
    with SqliteSaver.from_conn_string(str(new)) as saver:
        assert history(saver) == expected
        assert say(saver, "four")[-2:] == ["four", "answer 7"]
    # What LangGraph wrote there comes back, and nothing else.
    again = command("import", new, "--store", store)
    assert again["checkpoints"] == {"new": 3, "unchanged": len(expected)}


def test_a_thread_that_people_wrote_is_continued_by_langgraph(tmp_path: pathlib.Path) -> None:
    store, new = tmp_path / "chat.db", tmp_path / "new.sqlite"
    with annals.Store(store) as opened:
        opened.thread("chat").append_messages([("human", "one"), ("ai", "answer 1")])
    command("export", "chat", "--to", "langgraph-sqlite", "--out", new, "--store", store)
    with SqliteSaver.from_conn_string(str(new)) as saver:
        assert say(saver, "two") == ["one", "answer 1", "two", "answer 3"]


def test_the_memory_of_a_sqlite_store_is_imported(tmp_path: pathlib.Path) -> None:
    from langgraph.store.sqlite import SqliteStore

    old, store = tmp_path / "old.sqlite", tmp_path / "chat.db"
    with SqliteStore.from_conn_string(str(old)) as memory:
        memory.setup()
        memory.put(("users", "ann"), "home", {"city": "Bern"})
        memory.put(("users",), "bob", {"age": 17})
    assert sqlite3.connect(old).execute("SELECT count(*) FROM store").fetchone() == (2,)
    imported = command("import", old, "--from", "langgraph", "--store", store)
    assert (imported["items"], imported["threads"]) == (2, 0)

    from annals.langgraph import AnnalsStore

    memory = AnnalsStore(store)
    item = memory.get(("users", "ann"), "home")
    assert item is not None and item.value == {"city": "Bern"}
    assert set(memory.list_namespaces()) == {("users",), ("users", "ann")}
