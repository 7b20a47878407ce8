#!/usr/bin/env python3
"""The turns of annals-bench with the real LangGraph and its Postgres saver, and its workflow of five empty tasks with DBOS,
both on one server: one JSON object on stdout.

Each turn invokes {"n": i} on the same thread; the one node returns one AI message of 500 letters that do not compress;
durability "sync". Sizes are those of all tables with their indexes after a vacuum. Needs:

    pip install langgraph langgraph-checkpoint-postgres 'psycopg[binary]' dbos

Exit code 3: a package is missing.
"""

import argparse
import json
import logging
import os
import random
import statistics
import sys
import time

os.environ["LANGSMITH_TRACING"] = "false"
os.environ["LANGCHAIN_TRACING_V2"] = "false"

try:
    from importlib.metadata import version
    from typing import Annotated, TypedDict

    import psycopg
    from dbos import DBOS
    from langchain_core.messages import AIMessage
    from langgraph.checkpoint.postgres import PostgresSaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.graph.message import add_messages
except ImportError as error:
    sys.exit(print(f"{sys.executable} lacks a package: {error}; the script names them", file=sys.stderr) or 3)


class Chat(TypedDict):
    n: int
    messages: Annotated[list, add_messages]


def answer(state):
    letters = random.Random(state["n"])
    return {"messages": [AIMessage(content="".join(letters.choices("0123456789abcdefghijklmnopqrstuvwxyz", k=500)))]}


def size_of(url):
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("VACUUM")
        (size,) = conn.execute(
            "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c WHERE c.relkind = 'r' "
            "AND c.relnamespace = current_schema()::regnamespace"
        ).fetchone()
    return size


def turns_of(url, turns):
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        builder = StateGraph(Chat)
        builder.add_node("answer", answer)
        builder.add_edge(START, "answer")
        builder.add_edge("answer", END)
        graph = builder.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "chat"}}
        times = []
        for n in range(turns):
            start = time.perf_counter()
            graph.invoke({"n": n}, config, durability="sync")
            times.append((time.perf_counter() - start) * 1e3)
        assert len(graph.get_state(config).values["messages"]) == turns
    return statistics.median(times[-50:]), size_of(url) / turns


@DBOS.step()
def one(n):
    return n + 1


@DBOS.workflow()
def flow(n):
    return one(one(one(one(one(n)))))


def workflows_of(url, runs):
    DBOS(config={"name": "flow", "system_database_url": url, "run_admin_server": False})
    logging.disable(logging.CRITICAL)
    DBOS.launch()
    for n in range(5):
        flow(n)
    times = []
    for n in range(runs):
        start = time.perf_counter()
        assert flow(n) == n + 5
        times.append(time.perf_counter() - start)
    DBOS.destroy()
    return 1 / statistics.median(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True, help="a schema for the saver")
    parser.add_argument("--dbos", required=True, help="a database for DBOS")
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=200)
    args = parser.parse_args()
    turn_ms, turn_bytes = turns_of(args.url, args.turns)
    result = {
        "langgraph": version("langgraph"),
        "langgraph_checkpoint_postgres": version("langgraph-checkpoint-postgres"),
        "dbos": version("dbos"),
        "turn_ms": round(turn_ms, 2),
        "turn_bytes": round(turn_bytes),
        "workflows_per_s": round(workflows_of(args.dbos, args.runs), 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
