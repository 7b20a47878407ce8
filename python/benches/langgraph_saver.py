"""Turns of a chat with LangGraph: `AnnalsSaver` beside `SqliteSaver`, and a saver that keeps nothing.

    python benches/langgraph_saver.py [--turns 1000 3000] [--json FILE]

A turn is one `invoke` of a compiled graph of one node, with a human message and the answer to it, each with 500 bytes
of text that cannot be compressed. A thread is first brought to its length: by turns, but with the SQLite saver by one
update, because its turns would write gigabytes. Then turns, states and histories are measured in alternation, so that a
slow moment of the machine meets all savers. Times are medians; ratios are those of the SQLite saver to this one.
Figures with `cpu` are of the time of the processor, in all threads, which other programs change less. Bytes are those
of the whole file for each of its turns. A turn of the SQLite saver stores bytes in proportion to the length of the
thread, so its average over a thread is half of what a turn at the end stores.
"""

from __future__ import annotations

import argparse
import base64
import gc
import json
import os
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import Annotated, TypedDict

from annals.langgraph import AnnalsSaver

TEXT_BYTES = 500


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class LastTuple(BaseCheckpointSaver[str]):
    """The floor: the newest tuple of a thread in a variable, neither encoded nor copied."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Any = None

    def get_tuple(self, config: Any) -> Any:
        return self.last

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        from langgraph.checkpoint.base import CheckpointTuple

        configurable = {**config["configurable"], "checkpoint_id": checkpoint["id"]}
        self.last = CheckpointTuple({"configurable": configurable}, checkpoint, metadata, None, [])
        return self.last.config

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        pass

    get_next_version = InMemorySaver.get_next_version  # type: ignore[assignment]


def text(source: random.Random) -> str:
    return base64.b85encode(source.randbytes(TEXT_BYTES * 4 // 5)).decode()


def compiled(saver: BaseCheckpointSaver[Any], source: random.Random) -> Any:
    builder = StateGraph(State)
    builder.add_node("model", lambda state: {"messages": [AIMessage(text(source))]})
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=saver)


class Subject:
    """A graph with a saver, on one thread."""

    def __init__(self, name: str, saver: BaseCheckpointSaver[Any], size: Callable[[], int]) -> None:
        self.name, self.saver, self.size = name, saver, size
        self.source = random.Random(7)
        self.graph = compiled(saver, self.source)
        self.config: Any = {"configurable": {"thread_id": "chat"}}
        self.turns = 0

    def turn(self) -> None:
        self.graph.invoke({"messages": [HumanMessage(text(self.source))]}, self.config, durability="async")
        self.turns += 1

    def state(self) -> None:
        found = len(self.graph.get_state(self.config).values["messages"])
        assert found == 2 * self.turns, found

    def history(self) -> None:
        found = len(list(self.graph.get_state_history(self.config, limit=20)))
        assert found == 20 or self.turns < 20, found


def file_bytes(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in folder.iterdir())


def seconds(run: Callable[[], None]) -> tuple[float, float]:
    """Returns the time that a call takes, and that of the processor."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - begin, time.process_time() - begin_cpu


def subjects(folder: Path) -> list[Subject]:
    """Makes the savers, each with a folder of its own."""
    ours, theirs = folder / "annals", folder / "sqlite"
    ours.mkdir()
    theirs.mkdir()
    connection = sqlite3.connect(theirs / "chat.db", check_same_thread=False)

    def sqlite_size() -> int:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return file_bytes(theirs)

    return [
        Subject("annals", AnnalsSaver(ours / "chat.db"), lambda: file_bytes(ours)),
        Subject("sqlite", SqliteSaver(connection), sqlite_size),
        Subject("floor", LastTuple(), lambda: 0),
    ]


def fill(subject: Subject, turns: int) -> None:
    """Brings a thread to a length."""
    if subject.name != "sqlite":
        while subject.turns < turns:
            subject.turn()
        return
    pair = (HumanMessage, AIMessage)
    messages = [pair[at % 2](text(subject.source)) for at in range(2 * turns)]
    subject.graph.update_state(subject.config, {"messages": messages}, as_node="model")
    subject.turns = turns


def measured(turns: int, rounds: int) -> dict[str, float]:
    """Returns the figures of a thread of so many turns."""
    with tempfile.TemporaryDirectory() as name:
        ours, theirs, floor = all_subjects = subjects(Path(name))
        for subject in all_subjects:
            fill(subject, turns - rounds)
            subject.turn()
        begin = theirs.size()
        times: dict[str, list[float]] = {}

        def measure(subject: Subject, what: str) -> None:
            gc.collect()
            for kind, taken in zip(("ms", "cpu_ms"), seconds(getattr(subject, what))):
                times.setdefault(f"{subject.name}_{what}_{kind}", []).append(taken)

        for _ in range(rounds):
            for subject in all_subjects:
                measure(subject, "turn")
        grown = theirs.size() - begin
        for what, count in (("state", 10), ("history", 3)):
            for _ in range(count):
                for subject in (ours, theirs, floor)[: 3 if what == "state" else 2]:
                    measure(subject, what)
        ours.saver.close()  # type: ignore[attr-defined]
        figures = {name: statistics.median(taken) * 1000 for name, taken in times.items()}
        figures["annals_bytes_per_turn"] = ours.size() / ours.turns
        figures["sqlite_bytes_per_turn"] = grown / rounds / 2
        figures["bytes_ratio"] = figures["sqlite_bytes_per_turn"] / figures["annals_bytes_per_turn"]
        for what in ("turn", "state", "history"):
            for kind, of in (("ms", "ratio"), ("cpu_ms", "cpu_ratio")):
                figures[f"{what}_{of}"] = figures[f"sqlite_{what}_{kind}"] / figures[f"annals_{what}_{kind}"]
        figures["turn_ratio_of_floor"] = figures["sqlite_turn_ms"] / figures["floor_turn_ms"]
        return figures


def main() -> None:
    """Prints the figures of each length, or writes them to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, nargs="+", default=[1000, 3000])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("LANGSMITH_TRACING", "false")
    results = {}
    for turns in given.turns:
        results[turns] = measured(turns, min(given.rounds, turns // 2))
        print(f"{turns} turns")
        for name, figure in results[turns].items():
            print(f"  {name:24} {figure:14,.3f}")
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
