#!/usr/bin/env python3
"""The workflow of five empty tasks of annals-bench with DBOS and its embedded SQLite: one JSON object on stdout.

Each workflow calls five steps, each of which adds one to a number. DBOS stores the status of the workflow and the result of each
step; it opens SQLite with its own defaults, which are shown in the result. Needs:

    pip install dbos

Exit code 3: the package is missing.
"""

import argparse
import json
import logging
import os
import platform
import sqlite3
import statistics
import sys
import time

try:
    from importlib.metadata import version

    from dbos import DBOS, SetWorkflowID
except ImportError as error:
    sys.exit(print(f"{sys.executable} lacks a package: {error}; the script names it", file=sys.stderr) or 3)


@DBOS.step()
def one(n):
    return n + 1


@DBOS.step()
def two(n):
    return n + 1


@DBOS.step()
def three(n):
    return n + 1


@DBOS.step()
def four(n):
    return n + 1


@DBOS.step()
def five(n):
    return n + 1


@DBOS.workflow()
def flow(n):
    return five(four(three(two(one(n)))))


def size_of(path):
    return sum(os.path.getsize(path + suffix) for suffix in ("", "-wal") if os.path.exists(path + suffix))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--runs", type=int, default=200)
    args = parser.parse_args()
    path = os.path.join(args.dir, "dbos.db")
    for suffix in ("", "-wal", "-shm"):
        if os.path.exists(path + suffix):
            os.remove(path + suffix)
    DBOS(config={"name": "flow", "system_database_url": f"sqlite:///{path}", "run_admin_server": False})
    logging.disable(logging.CRITICAL)
    DBOS.launch()
    for n in range(5):
        flow(n)
    before = size_of(path)
    times = []
    for n in range(args.runs):
        start = time.perf_counter()
        with SetWorkflowID(f"order-{n}"):
            result = flow(n)
        times.append((time.perf_counter() - start) * 1e6)
        assert result == n + 5, result
    DBOS.destroy()
    conn = sqlite3.connect(path)
    journal = conn.execute("PRAGMA journal_mode").fetchone()[0]
    (rows,) = conn.execute("SELECT count(*) FROM operation_outputs").fetchone()
    assert rows == 5 * (args.runs + 5), rows
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    conn.close()
    print(
        json.dumps(
            {
                "dbos": version("dbos"),
                "python": platform.python_version(),
                "journal_mode": journal,
                "workflow_us": round(statistics.median(times), 1),
                "workflow_bytes": round((size_of(path) - before) / args.runs, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
