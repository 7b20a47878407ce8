"""Kills a process that runs turns at random moments, and goes on from the last turn that it acknowledged.

    python tests/langgraph_kills.py [--kills 100] [--store ADDRESS]
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from langchain_core.messages import HumanMessage
from test_langgraph_saver import compiled, config, texts

from annals.langgraph import AnnalsSaver


def run_turns(address: str) -> None:
    """Runs turns until the process is killed, and says of each that it was acknowledged."""
    graph = compiled(AnnalsSaver(address))
    number = len(graph.get_state(config()).values.get("messages", [])) // 2
    while True:
        graph.invoke({"messages": [HumanMessage(f"turn {number}")], "count": 0}, config())
        print(number, flush=True)
        number += 1


def resume(address: str, acknowledged: int) -> int:
    """Goes on with the thread, and returns the number of its turns. Every acknowledged one must be in it."""
    with AnnalsSaver(address) as saver:
        graph = compiled(saver)
        # A task whose writes are stored, and whose checkpoint is not, is no next one, and still waits.
        if graph.get_state(config()).tasks:
            graph.invoke(None, config())
        values = {"messages": [], **graph.get_state(config()).values}
        turns = len(values["messages"]) // 2
        assert turns > acknowledged, f"turn {acknowledged} was acknowledged, and there are {turns}"
        wanted = [text for number in range(turns) for text in (f"turn {number}", f"answer {2 * number + 1}")]
        assert texts(values) == wanted, "the thread is the one that was acknowledged"
        assert saver.store.check().problems == []
        return turns


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--store")
    parser.add_argument("--turns", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.turns:
        return run_turns(given.turns)
    address, turns, source = given.store or str(Path(tempfile.mkdtemp()) / "kills.db"), 0, random.Random(11)
    for kill in range(given.kills):
        process = subprocess.Popen([sys.executable, __file__, "--turns", address], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        # The first turn of the process tells that it has begun; the kill comes somewhere in those that follow.
        acknowledged = int(process.stdout.readline())
        time.sleep(source.random() * 0.1)
        process.kill()
        acknowledged = max([acknowledged, *(int(line) for line in process.stdout if line.strip().isdigit())])
        process.wait()
        turns = resume(address, acknowledged)
    print(f"{given.kills} kills, {turns} turns")


if __name__ == "__main__":
    main()
