"""A PostgreSQL server for the tests: that of the environment, or one that is started for them.

`ANNALS_POSTGRES` is the URL of a server that is there; its schemas `annals_py_..` are dropped and made anew.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from itertools import count
from pathlib import Path
from types import TracebackType

# The user as whom the server runs if the tests run as root, which it refuses.
USERS = ("postgres", "nobody")
OPTIONS = (
    "-c listen_addresses='' -c fsync=off -c full_page_writes=off -c wal_level=minimal -c max_wal_senders=0 "
    "-c max_connections=200"
)
ROLE, PASSWORD = "guarded", "correct horse"


class NoServerError(Exception):
    """No server can be started here."""


def programs() -> Path:
    """Returns the folder of the programs: of Debian's newest server, or one of the path."""
    of_debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    of_path = [Path(found).parent for found in [shutil.which("initdb")] if found]
    for folder in [*of_debian, *of_path]:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise NoServerError("there is no initdb; Debian's package is `postgresql`")


def is_user(name: str) -> bool:
    return subprocess.run(["id", name], capture_output=True).returncode == 0


class Server:
    """A server. One that was started is stopped at the end."""

    def __init__(self) -> None:
        self._numbers = count()
        self._folder: Path | None = None
        self._programs = programs()
        if given := os.environ.get("ANNALS_POSTGRES"):
            self.url = given
            return
        self._as: list[str] = []
        self._folder = Path(tempfile.mkdtemp(prefix="annals-py"))
        if os.geteuid() == 0:
            user = next(filter(is_user, USERS), None)
            if user is None:
                raise NoServerError("root needs another user for the server")
            self._as = ["runuser", "-u", user, "--"]
            shutil.chown(self._folder, user)
        data = self._folder / "data"
        self._run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions")
        rules = data / "pg_hba.conf"
        rules.write_text(f"local all {ROLE} scram-sha-256\n{rules.read_text()}")
        self._control("start")
        self.url = f"postgres://postgres@localhost/postgres?host={self._folder}"
        self.execute(f"CREATE ROLE {ROLE} LOGIN SUPERUSER PASSWORD '{PASSWORD}'")

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._folder is not None:
            self._control("stop")
            shutil.rmtree(self._folder)

    @property
    def is_started(self) -> bool:
        """True if it was started for the tests, so that its users are known."""
        return self._folder is not None

    @property
    def folder(self) -> Path:
        """The folder of the socket of a server that was started."""
        assert self._folder is not None
        return self._folder

    def empty(self) -> str:
        """Returns the URL of an empty schema."""
        name = f"annals_py_{os.getpid()}_{next(self._numbers)}"
        self.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}")
        return f"{self.url}{'&' if '?' in self.url else '?'}options=-csearch_path%3D{name}"

    def execute(self, sql: str) -> None:
        """Runs statements."""
        command = [self._programs / "psql", "--quiet", "--no-psqlrc", "--set", "ON_ERROR_STOP=1", "-c", sql, self.url]
        env = {**os.environ, "PGOPTIONS": "-c client_min_messages=warning"}
        ran = subprocess.run(command, capture_output=True, text=True, env=env)
        assert ran.returncode == 0, ran.stderr

    def _control(self, action: str) -> None:
        assert self._folder is not None
        options = f"{OPTIONS} -c unix_socket_directories={self._folder}"
        data, log = self._folder / "data", self._folder / "log"
        self._run("pg_ctl", "-w", "-s", "-m", "immediate", "-D", data, "-l", log, "-o", options, action)

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = [*self._as, str(self._programs / program), *map(str, arguments)]
        # The server inherits no pipe, which would stay open as long as it runs.
        with tempfile.TemporaryFile() as errors:
            ran = subprocess.run(command, cwd=self._folder, stdout=subprocess.DEVNULL, stderr=errors)
            errors.seek(0)
            if ran.returncode != 0:
                raise NoServerError(f"{program} failed: {errors.read().decode(errors='replace')}")
