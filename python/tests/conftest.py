"""What the tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from postgres_server import NoServerError, Server

import annals


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL server. Without one the test is skipped, unless `ANNALS_POSTGRES_REQUIRED` is set."""
    try:
        started = Server()
    except NoServerError as error:
        if os.environ.get("ANNALS_POSTGRES_REQUIRED"):
            raise
        pytest.skip(f"no PostgreSQL server: {error}")
    with started:
        yield started


@pytest.fixture(params=["file", "server"])
def addresses(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Paths of stores that are not there yet, or URLs of such."""
    if request.param == "file":
        return (str(tmp_path / f"{number}.db") for number in count())
    server: Server = request.getfixturevalue("server")
    return (server.empty() for _ in count())


@pytest.fixture
def address(addresses: Iterator[str]) -> str:
    """The path of a store that is not there yet, or the URL of one."""
    return next(addresses)


@pytest.fixture(params=["file", "memory", "server"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[annals.Store]:
    """A store on each backend. A file, and a store on a server, must be sound when the test has ended."""
    if request.param == "memory":
        yield annals.Store.memory()
        return
    name = tmp_path / "test.db" if request.param == "file" else request.getfixturevalue("server").empty()
    with annals.Store(name) as opened:
        yield opened
        assert opened.check().problems == []


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[annals.Store]:
    """A store in a file, which must be sound when the test has ended."""
    with annals.Store(tmp_path / "test.db") as opened:
        yield opened
        assert opened.check().problems == []
