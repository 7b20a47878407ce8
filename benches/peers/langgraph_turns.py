#!/usr/bin/env python3
"""The turns of annals-bench with the real LangGraph and its SQLite saver: one JSON object on stdout.

Each turn invokes {"n": i} on the same thread; the one node returns one AI message of 500 bytes; durability "sync";
the saver's defaults (WAL, synchronous FULL). Needs:

    pip install langgraph==1.2.22 langgraph-checkpoint-sqlite==3.1.2 langchain-core==1.7.2

Exit code 3: a package is missing.
"""

import argparse
import json
import os
import platform
import sqlite3
import statistics
import sys
import time

os.environ["LANGSMITH_TRACING"] = "false"
os.environ["LANGCHAIN_TRACING_V2"] = "false"

try:
    from importlib.metadata import version
    from typing import Annotated, TypedDict

    from langchain_core.messages import AIMessage
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.graph.message import add_messages
except ImportError as error:
    sys.exit(print(f"{sys.executable} lacks a package: {error}; the script names them", file=sys.stderr) or 3)


class Chat(TypedDict):
    n: int
    messages: Annotated[list, add_messages]


def text(n):
    words = f"{n}: append only checkpoint of the thread and its history "
    return (words * 10)[:500]


def answer(state):
    return {"messages": [AIMessage(content=text(state["n"]))]}


def run(folder, turns):
    path = os.path.join(folder, f"langgraph-{turns}.db")
    conn = sqlite3.connect(path, check_same_thread=False)
    builder = StateGraph(Chat)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    graph = builder.compile(checkpointer=SqliteSaver(conn))
    config = {"configurable": {"thread_id": "chat"}}
    times = []
    for n in range(turns):
        start = time.perf_counter()
        graph.invoke({"n": n}, config, durability="sync")
        times.append((time.perf_counter() - start) * 1e6)
    start = time.perf_counter()
    state = graph.get_state(config).values
    get_state_us = (time.perf_counter() - start) * 1e6
    assert len(state["messages"]) == turns and all(len(m.content) == 500 for m in state["messages"])
    (rows,) = conn.execute("SELECT count(*) FROM checkpoints").fetchone()
    assert rows == 3 * turns, rows
    synchronous = conn.execute("PRAGMA synchronous").fetchone()[0]
    journal = conn.execute("PRAGMA journal_mode").fetchone()[0]
    assert (synchronous, journal) == (2, "wal"), (synchronous, journal)
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    conn.close()
    size = os.path.getsize(path)
    os.remove(path)
    return statistics.median(times[-50:]), statistics.mean(times), size / turns, get_state_us


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--turns", default="100,1000")
    args = parser.parse_args()
    names = {100: "100", 1000: "1k"}
    result = {
        "langgraph": version("langgraph"),
        "langgraph_checkpoint_sqlite": version("langgraph-checkpoint-sqlite"),
        "langchain_core": version("langchain-core"),
        "python": platform.python_version(),
        "durability": "sync, synchronous FULL",
    }
    for turns in (int(turns) for turns in args.turns.split(",")):
        name = names.get(turns, str(turns))
        last, mean, size, get_state = run(args.dir, turns)
        result[f"turn_us_{name}"] = round(last, 1)
        result[f"turn_mean_us_{name}"] = round(mean, 1)
        result[f"bytes_per_turn_{name}"] = round(size, 1)
        result[f"get_state_us_{name}"] = round(get_state, 1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
