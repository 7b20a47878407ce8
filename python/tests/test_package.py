"""The package as a whole: its stub, its documentation, the command, and the examples of its front page."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import annals
from annals import _annals

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# A module that an example imports, and the name of the library that it needs.
LIBRARIES = {"annals.langgraph": "langgraph", "annals.pydantic_ai": "pydantic_ai"}


def run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_the_stub_is_that_of_the_module() -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    checked = run(sys.executable, "-m", "mypy.stubtest", "annals._annals", cwd=ROOT)
    assert checked.returncode == 0, checked.stdout
    checked = run(sys.executable, "stubs.py", "--check", cwd=ROOT)
    assert checked.returncode == 0, "run `python stubs.py`, which copies the docstrings into the stub"


def test_the_types_of_the_package_are_strict() -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    for library in LIBRARIES.values():
        pytest.importorskip(library, reason=f"{library} is not installed")
    checked = run(sys.executable, "-m", "mypy", "py/annals", cwd=ROOT)
    assert checked.returncode == 0, checked.stdout


def test_every_public_name_is_documented() -> None:
    undocumented = [name for name in annals.__all__ if name != "__version__" and not getattr(annals, name).__doc__]
    for name in annals.__all__:
        holder = getattr(annals, name)
        if inspect.isclass(holder) and holder.__module__.startswith("annals"):
            members = (member for member in vars(holder) if not member.startswith("_"))
            undocumented += [f"{name}.{member}" for member in members if not getattr(holder, member).__doc__]
    assert undocumented == []
    assert {name for name in vars(_annals) if name[0].isupper()} <= set(annals.__all__)


def test_the_module_is_the_command(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with annals.Store(path) as store:
        store.thread("alice").append_messages(["hi"])
    env = {**os.environ, "ANNALS_STORE": str(path)}
    listed = run(sys.executable, "-m", "annals", "threads", "--json", env=env)
    assert listed.returncode == 0 and json.loads(listed.stdout)["threads"][0]["thread"] == "alice", listed
    absent = run(sys.executable, "-m", "annals", "log", "bob", env=env)
    assert absent.returncode == 3 and "bob" in absent.stderr
    assert run(sys.executable, "-m", "annals", "nonsense", env=env).returncode == 2


def test_the_wheel_is_one_of_every_python_with_a_global_lock() -> None:
    tags = pytest.importorskip("packaging.tags", reason="packaging is not installed")
    wheel = importlib.metadata.distribution("annals").read_text("WHEEL") or ""
    (tag,) = re.findall(r"^Tag: (\S+)", wheel, re.MULTILINE)
    assert tag.startswith("cp310-abi3-"), tag

    def is_installed_by(version: tuple[int, int], abi: str) -> bool:
        platform = tag.split("-")[2]
        return tag in map(str, tags.cpython_tags(version, abis=[abi], platforms=[platform]))

    assert all(is_installed_by((3, minor), f"cp3{minor}") for minor in range(10, 15))
    # An installer of a free-threaded Python finds no wheel, and says so.
    assert not any(is_installed_by((3, minor), f"cp3{minor}t") for minor in (13, 14))
    assert not is_installed_by((3, 9), "cp39")


def examples() -> list[Any]:
    found = []
    for page in PAGES:
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        found += [pytest.param(block, id=f"{page.stem}-{at}") for at, block in enumerate(blocks)]
    return found


@pytest.mark.parametrize("example", examples())
def test_the_examples_of_the_pages_run(example: str, tmp_path: Path) -> None:
    for module, library in LIBRARIES.items():
        if f"from {module}" in example and importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    script = tmp_path / "example.py"
    script.write_text(example, encoding="utf-8")
    ran = run(sys.executable, str(script), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr


def test_the_library_needs_no_other(tmp_path: Path) -> None:
    code = "import sys, annals; annals.Store.memory().thread('a').set('x', 1); print(sorted(sys.modules))"
    ran = run(sys.executable, "-c", code, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert not [name for name in ("langgraph", "pydantic", "pandas", "typing_extensions") if f"'{name}'" in ran.stdout]
