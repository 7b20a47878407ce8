"""Loads a file of messages with langchain-core and writes one JSON object with the times in milliseconds.

usage: langchain_messages.py FILE

FILE is a JSON list of dictionaries as `messages_to_dict` gives them. `messages_from_dict_ms` is the time of that
function alone, `load_messages_ms` that of reading and parsing the file as well; each the best of five.
Exits with 3, and a reason on stderr, if langchain-core is not installed.
"""

import json
import sys
import time

try:
    from importlib.metadata import version

    from langchain_core.messages import messages_from_dict
except ImportError as error:
    print(f"langchain-core is not installed for {sys.executable}: {error}", file=sys.stderr)
    sys.exit(3)


def main() -> None:
    alone, whole = [], []
    for _ in range(5):
        start = time.perf_counter()
        with open(sys.argv[1], encoding="utf-8") as file:
            dicts = json.load(file)
        parsed = time.perf_counter()
        messages = messages_from_dict(dicts)
        end = time.perf_counter()
        assert len(messages) == len(dicts)
        alone.append((end - parsed) * 1e3)
        whole.append((end - start) * 1e3)
    figures = {
        "messages_from_dict_ms": round(min(alone), 2),
        "load_messages_ms": round(min(whole), 2),
        "messages": len(messages),
        "langchain_core": version("langchain-core"),
        "python": sys.version.split()[0],
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
