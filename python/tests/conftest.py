"""What the tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import annals


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[annals.Store]:
    """A store on either backend. A file must be sound when the test has ended."""
    if request.param == "memory":
        yield annals.Store.memory()
        return
    with annals.Store(tmp_path / "test.db") as opened:
        yield opened
        assert opened.check().problems == []


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[annals.Store]:
    """A store in a file, which must be sound when the test has ended."""
    with annals.Store(tmp_path / "test.db") as opened:
        yield opened
        assert opened.check().problems == []
