"""Runs the persistence vectors of the repository against the store and the cache for LangGraph.

    python tests/vectors.py [FOLDER]
"""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from langgraph.store.base import NOT_PROVIDED, GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp

import annals
from annals.langgraph import AnnalsCache, AnnalsStore

FOLDER = Path(__file__).parents[2] / "tests" / "parity" / "persistence"
BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
TOLERANCE = 1e-5


def cases(folder: Path, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Returns the cases of a kind, each with the name of its file."""
    for path in sorted((folder / kind).glob("*.json")):
        for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
            yield f"{kind}/{path.stem}", case


def read(value: Any) -> Any:
    """Reads a value, in which an object of one member stands for what JSON lacks."""
    if isinstance(value, dict):
        if value.keys() == {"$bytes"}:
            return base64.b64decode(value["$bytes"])
        if value.keys() == {"$float"}:
            return float(value["$float"])
        return {name: read(member) for name, member in value.items()}
    return [read(item) for item in value] if isinstance(value, list) else value


def shown(value: Any) -> Any:
    """Shows a value as the vectors write it."""
    if isinstance(value, dict):
        return {name: shown(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    return value


def letters(dims: int) -> Callable[[list[str]], list[list[float]]]:
    """Returns the embedding of the vectors, which counts letters."""

    def embed(texts: list[str]) -> list[list[float]]:
        vectors = []
        for text in texts:
            vector = [0.0] * dims
            for letter in text.lower():
                if "a" <= letter <= "z":
                    vector[(ord(letter) - ord("a")) % dims] += 1
            vectors.append(vector)
        return vectors

    return embed


class StoreCase:
    """Runs the operations of a case of the store."""

    def __init__(self, case: dict[str, Any], store: annals.Store) -> None:
        config = case.get("store") or {}
        index = config.get("index")
        made = None
        if index:
            made = {"dims": index["dims"], "embed": letters(index["dims"]), "fields": index.get("fields")}
        self.store = AnnalsStore(store, index=made, ttl=config.get("ttl"))

    def run(self, op: dict[str, Any]) -> Any:
        """Runs an operation and returns the value of its outcome."""
        store, name = self.store, op["op"]
        if name == "put":
            ttl = op["ttl"] if "ttl" in op else NOT_PROVIDED
            return store.put(tuple(op["namespace"]), op["key"], read(op["value"]), op.get("index"), ttl=ttl)
        if name == "delete":
            return store.delete(tuple(op["namespace"]), op["key"])
        if name == "get":
            item = store.get(tuple(op["namespace"]), op["key"], refresh_ttl=op.get("refresh_ttl"))
            return None if item is None else self.item(item)
        if name == "search":
            given = {member: op[member] for member in ("query", "limit", "offset", "refresh_ttl") if member in op}
            found = store.search(tuple(op["prefix"]), filter=read(op.get("filter")), **given)
            return [{**self.item(item), "score": item.score} for item in found]
        if name == "list_namespaces":
            given = {member: op[member] for member in ("max_depth", "limit", "offset") if member in op}
            for member in ("prefix", "suffix"):
                if op.get(member) is not None:
                    given[member] = tuple(op[member])
            return [list(namespace) for namespace in store.list_namespaces(**given)]
        if name == "sweep_ttl":
            return store.sweep_ttl()
        assert name == "batch", name
        results = store.batch([self.op(op) for op in op["ops"]])
        return [self.result(op, result) for op, result in zip(op["ops"], results)]

    @staticmethod
    def op(op: dict[str, Any]) -> Any:
        """Makes an operation of a batch."""
        if op["op"] == "get":
            return GetOp(tuple(op["namespace"]), op["key"], op.get("refresh_ttl", True))
        if op["op"] == "put":
            value = read(op["value"])
            return PutOp(tuple(op["namespace"]), op["key"], value, op.get("index"), op.get("ttl"))
        if op["op"] == "search":
            given = {member: op[member] for member in ("query", "limit", "offset", "refresh_ttl") if member in op}
            return SearchOp(tuple(op["prefix"]), filter=read(op.get("filter")), **given)
        conditions = tuple(MatchCondition(how, tuple(path)) for how, path in op.get("match_conditions") or ())
        given = {member: op[member] for member in ("max_depth", "limit", "offset") if member in op}
        return ListNamespacesOp(match_conditions=conditions or None, **given)

    def result(self, op: dict[str, Any], result: Any) -> Any:
        """Shows a result of a batch."""
        if op["op"] == "get":
            return None if result is None else self.item(result)
        if op["op"] == "search":
            return [{**self.item(item), "score": item.score} for item in result]
        return None if result is None else [list(namespace) for namespace in result]

    @staticmethod
    def item(item: Any) -> dict[str, Any]:
        """Shows an item. Its reference makes an entry anew when it is put again, and this store retains the first time."""
        assert item.created_at <= item.updated_at
        put = item.updated_at.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "namespace": list(item.namespace),
            "key": item.key,
            "value": shown(item.value),
            "created_at": put,
            "updated_at": put,
        }


class CacheCase:
    """Runs the operations of a case of the cache."""

    def __init__(self, _case: dict[str, Any], store: annals.Store) -> None:
        self.cache: AnnalsCache[Any] = AnnalsCache(store)

    def run(self, op: dict[str, Any]) -> Any:
        """Runs an operation and returns the value of its outcome."""
        if op["op"] == "get":
            found = self.cache.get([(tuple(namespace), key) for namespace, key in op["keys"]])
            return [[list(namespace), key, shown(found[namespace, key])] for namespace, key in sorted(found)]
        if op["op"] == "set":
            for namespace, key, value, ttl in op["entries"]:
                self.cache.set({(tuple(namespace), key): (read(value), ttl)})
            return None
        namespaces = op.get("namespaces")
        return self.cache.clear(None if namespaces is None else [tuple(namespace) for namespace in namespaces])


def outcomes(kind: str, case: dict[str, Any], store: annals.Store, clock: annals.ManualClock) -> list[Any]:
    """Runs a case and returns the outcome of each operation."""
    runner = StoreCase(case, store) if kind == "store" else CacheCase(case, store)
    tick = case.get("tick", 1) if kind == "store" else 0
    found: list[Any] = []
    for op in case["ops"]:
        if op["op"] == "advance":
            clock.advance(op["seconds"])
            found.append({"ok": None})
            continue
        try:
            found.append({"ok": runner.run(op)})
        except Exception as error:  # Any class of error is an outcome.
            found.append({"error": {"class": class_name(error), "message": str(error)}})
        clock.advance(tick)
    return found


def class_name(error: Exception) -> str:
    """Returns the name of the builtin class that an error of `annals` is one of, of another error its own."""
    if isinstance(error, annals.Error):
        return next(base.__name__ for base in reversed(type(error).__mro__) if base in (TypeError, ValueError))
    return type(error).__name__


def differs(expected: Any, outcome: Any, op: dict[str, Any]) -> str | None:
    """Returns the difference of an outcome from an expectation, `None` if there is none."""
    if "any" in expected:
        return None
    if "any_of" in expected:
        problems = [differs(one, outcome, op) for one in expected["any_of"]]
        return None if None in problems else f"none of them: {problems}"
    if "error" in expected or "error" in outcome:
        wanted, got = expected.get("error", {}).get("class"), outcome.get("error", {}).get("class")
        return None if wanted == got else f"expected error {wanted}, got {outcome}"
    wanted, got = expected["ok"], outcome["ok"]
    if op.get("compare") in ("set", "score") and isinstance(wanted, list):
        left = list(got)
        for one in wanted:
            at = next((at for at, item in enumerate(left) if difference(one, item, "$") is None), None)
            if at is None:
                return f"{one} is missing in {got}"
            left.pop(at)
        scores = [item["score"] if item["score"] is not None else -math.inf for item in got if "score" in item]
        if op["compare"] == "score" and any(a < b - TOLERANCE for a, b in zip(scores, scores[1:])):
            return f"the scores increase: {scores}"
        return f"{left} is too much" if left else None
    return difference(wanted, got, "$")


def difference(expected: Any, found: Any, path: str) -> str | None:
    """Compares two values with the types of their numbers."""
    if expected == {"$any": True}:
        return None
    if path.endswith(".score") and isinstance(expected, float) and isinstance(found, float):
        return None if abs(expected - found) < TOLERANCE else f"{path}: expected {expected}, got {found}"
    if type(expected) is not type(found):
        return f"{path}: expected {expected!r}, got {found!r}"
    if isinstance(expected, dict) and expected.keys() == found.keys():
        problems = (difference(expected[name], found[name], f"{path}.{name}") for name in expected)
        return next((problem for problem in problems if problem), None)
    if isinstance(expected, list) and len(expected) == len(found):
        problems = (difference(one, item, f"{path}[{at}]") for at, (one, item) in enumerate(zip(expected, found)))
        return next((problem for problem in problems if problem), None)
    return None if expected == found else f"{path}: expected {expected!r}, got {found!r}"


def problem(kind: str, case: dict[str, Any], path: Path | None) -> str | None:
    """Runs a case in memory, or in a file, and returns the first difference."""
    clock = annals.ManualClock(BEGIN)
    store = annals.Store.memory(clock=clock) if path is None else annals.Store(path, durable=False, clock=clock)
    with store:
        found = outcomes(kind, case, store, clock)
        for at, (op, expected, outcome) in enumerate(zip(case["ops"], case["expected"], found)):
            if (reason := differs(expected, outcome, op)) is not None:
                return f"op {at} ({op['op']}): {reason}"
        assert len(found) == len(case["expected"])
        return "; ".join(store.check().problems) or None


def main() -> int:
    """Runs all cases in memory, prints those that differ, and returns their number."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    count = failed = 0
    for kind in ("store", "cache"):
        for file, case in cases(folder, kind):
            count += 1
            if (reason := problem(kind, case, None)) is not None:
                failed += 1
                print(f"{file}: {case['name']}: {reason}")
    print(f"{count - failed} of {count} cases")
    return min(failed, 100)


if __name__ == "__main__":
    sys.exit(main())
