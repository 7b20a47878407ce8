"""Stores on a PostgreSQL server."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from postgres_server import PASSWORD, ROLE, Server

import annals


def test_a_url_opens_a_store_and_another_process_continues_it(server: Server) -> None:
    url = server.empty()
    with annals.Store(url, actor="ann") as store:
        assert store.path is None and PASSWORD not in repr(store) and repr(store).startswith('Store("postgres://')
        store.thread("alice").append_messages([("human", "A hotel in Bern?")])
        store.kv().put(("users",), "ann", {"city": "Bern"})
        code = "import sys, annals; annals.Store(sys.argv[1]).thread('alice').append_messages(['In Basel?'])"
        subprocess.run([sys.executable, "-c", code, url], check=True)
        texts = [message["content"] for message in store.thread("alice").at("@").items()]
        assert texts == ["A hotel in Bern?", "In Basel?"]
        assert [hit.thread for hit in store.search("basel")] == ["alice"]
    env = {**os.environ, "ANNALS_STORE": url}
    shown = subprocess.run([sys.executable, "-m", "annals", "show", "alice"], env=env, capture_output=True, text=True)
    assert shown.returncode == 0 and "In Basel?" in shown.stdout, shown.stderr


def test_what_is_about_files_says_so(server: Server, tmp_path: Path) -> None:
    with annals.Store(server.empty()) as store:
        with pytest.raises(annals.InvalidError, match="sql: .* on a server"):
            store.sql("select 1")
        with pytest.raises((annals.InvalidError, annals.UnsupportedError)):
            store.backup(tmp_path / "copy.db")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"key": b"k" * 32}, "key: .* in the clear"),
        ({"read_only": True}, "read_only: "),
        ({"durable": False}, "durable: "),
        ({"network_file_system": True}, "network_file_system: "),
        ({"busy_timeout": 1.0}, "busy_timeout: "),
    ],
)
def test_options_of_files_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(annals.InvalidError, match=message):
        annals.Store("postgres://app@db.invalid/annals", **options)


def opening_error(url: str, **options: Any) -> annals.Error:
    with pytest.raises(annals.Error) as raised:
        annals.Store(url, **options)
    assert "secret" not in str(raised.value) and PASSWORD not in str(raised.value)
    return raised.value


def test_a_bad_address_says_what_is_wrong(tmp_path: Path) -> None:
    for url, message in (
        ("postgres://app:secret@db:port/annals", "the URL is not one"),
        ("postgresql://app:secret@db/annals?unknown=1", "the URL is not one"),
        ("postgres://", "both host and hostaddr are missing"),
        (f"postgres://app:secret@localhost/annals?host={tmp_path}", "No such file"),
    ):
        error = opening_error(url)
        assert isinstance(error, annals.StorageError) and message in str(error), str(error)


def test_a_server_that_refuses_says_why(server: Server) -> None:
    if not server.is_started:
        pytest.skip("the users of a server that is there are not known")
    address = f"/postgres?host={server.folder}"
    error = opening_error(f"postgres://{ROLE}:secret@localhost{address}")
    assert isinstance(error, annals.StorageError) and "password authentication failed" in str(error), str(error)
    error = opening_error(f"postgres://postgres@localhost/none?host={server.folder}")
    assert isinstance(error, annals.StorageError) and '"none" does not exist' in str(error), str(error)
    schema = server.empty().split("&", 1)[1]
    error = opening_error(f"postgres://postgres@localhost{address}&{schema}", create=False)
    assert isinstance(error, annals.CorruptError) and error.code == "NOT_A_STORE", (error, error.code)
    with annals.Store(f"postgres://{ROLE}:{quote(PASSWORD)}@localhost{address}&{schema}") as store:
        store.thread("alice").set("title", "Bern")


def test_the_package_asks_for_tls() -> None:
    # The server reads the request of the protocol for TLS, and answers that it has none.
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:

        def refuse() -> bytes:
            connection, _ = listener.accept()
            with connection:
                asked = connection.recv(8)
                connection.sendall(b"N")
                return asked

        asked = pool.submit(refuse)
        error = opening_error(f"postgres://app:secret@127.0.0.1:{listener.getsockname()[1]}/annals?sslmode=require")
        assert isinstance(error, annals.StorageError) and "server does not support TLS" in str(error), str(error)
        assert asked.result() == struct.pack(">ii", 8, 80877103)


def test_the_classes_for_langgraph_take_a_url(server: Server) -> None:
    langgraph = pytest.importorskip("annals.langgraph", reason="langgraph-checkpoint is not installed")
    url = server.empty()
    langgraph.AnnalsStore(url).put(("a",), "k", {"n": 1})
    langgraph.AnnalsCache(url).set({(("n",), "k"): (1, None)})
    assert langgraph.AnnalsStore(url).get(("a",), "k").value == {"n": 1}
    assert langgraph.AnnalsCache(url).get([(("n",), "k")]) == {(("n",), "k"): 1}
    with langgraph.AnnalsSaver(url) as saver:
        assert saver.get_tuple({"configurable": {"thread_id": "alice"}}) is None
