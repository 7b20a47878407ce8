"""Turns on one thread of a shared store, each of which is stored or told to be a conflict: a process of a test.

    python tests/langgraph_turns.py ADDRESS TURNS NAME
"""

from __future__ import annotations

import sys

from langchain_core.messages import HumanMessage
from test_langgraph_saver import compiled, config

import annals
from annals.langgraph import AnnalsSaver


def main() -> None:
    address, turns, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    store = annals.Store(address) if "://" in address else annals.Store(address, busy_timeout=60)
    with AnnalsSaver(store) as saver:
        graph = compiled(saver)
        for number in range(turns):
            text = f"{name}-{number}"
            try:
                graph.invoke({"messages": [HumanMessage(text)], "count": 0}, config("shared"))
                print("stored", text, flush=True)
            except annals.ConflictError:
                print("conflict", text, flush=True)


if __name__ == "__main__":
    main()
