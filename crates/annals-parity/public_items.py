#!/usr/bin/env python3
"""Prints the public items of the graph API of LangGraph, one in a line, as `module.Class.member`.

    public_items.py                 print them
    public_items.py --check FILE    name those that the table in FILE (docs/parity.md) does not mention

An item is mentioned if its own name stands between backticks somewhere in the table.
"""
import argparse
import importlib
import inspect
import re
import sys

MODULES = [
    "langgraph.constants",
    "langgraph.graph",
    "langgraph.graph.state",
    "langgraph.graph.message",
    "langgraph.types",
    "langgraph.func",
    "langgraph.channels",
    "langgraph.managed",
    "langgraph.errors",
    "langgraph.runtime",
    "langgraph.config",
    "langgraph.callbacks",
    "langgraph.pregel",
    "langgraph.store.base",
    "langgraph.store.memory",
    "langgraph.cache.base",
    "langgraph.cache.memory",
]
# Classes whose members belong to the API that a program uses.
MEMBERS = {
    "StateGraph",
    "CompiledStateGraph",
    "Command",
    "Send",
    "Interrupt",
    "Overwrite",
    "RetryPolicy",
    "CachePolicy",
    "TimeoutPolicy",
    "StateSnapshot",
    "PregelTask",
    "StateUpdate",
    "Runtime",
    "ExecutionInfo",
    "ServerInfo",
    "RunControl",
    "entrypoint",
    "BaseStore",
    "Item",
    "SearchItem",
    "BaseCache",
    "InMemoryCache",
    "GraphOutput",
    "NodeError",
}


def public_names(module):
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            n
            for n, v in vars(module).items()
            if not n.startswith("_") and getattr(v, "__module__", "").startswith("langgraph") and not inspect.ismodule(v)
        ]
    return sorted(set(names))


def members(cls):
    for base in cls.__mro__:
        if not base.__module__.startswith("langgraph"):
            continue
        names = set(vars(base)) | set(getattr(base, "__annotations__", ()))
        yield from (n for n in names if not n.startswith("_"))


def items():
    seen, missing = {}, []
    for path in MODULES:
        try:
            module = importlib.import_module(path)
        except ImportError as error:
            missing.append(f"{path}: {error}")
            continue
        for name in public_names(module):
            seen.setdefault(name, path)
    for name, path in sorted(seen.items(), key=lambda item: (MODULES.index(item[1]), item[0])):
        yield path, name, name
        value = getattr(importlib.import_module(path), name, None)
        if name in MEMBERS and inspect.isclass(value):
            for member in sorted(set(members(value))):
                yield path, f"{name}.{member}", member
    for line in missing:
        print(f"not importable: {line}", file=sys.stderr)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--check", metavar="FILE")
    args = args.parse_args()
    try:
        from importlib.metadata import version

        print(f"langgraph {version('langgraph')}", file=sys.stderr)
    except Exception:
        sys.exit("langgraph is not installed: pip install langgraph==1.2.24")
    if not args.check:
        for path, shown, _ in items():
            print(f"{path}.{shown}")
        return
    with open(args.check, encoding="utf-8") as file:
        rows = [line for line in file if line.startswith("|")]
    words = set()
    for row in rows:
        first = row.split("|")[1]
        for code in re.findall(r"`([^`]*)`", first):
            words |= set(re.findall(r"\w+", code))
    lost = [f"{path}.{shown}" for path, shown, name in items() if name not in words]
    print("\n".join(lost))
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
