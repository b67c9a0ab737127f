"""A bus server that a test, or a bench, may kill and start again."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from random import Random

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from service.adapters.embedded.binaries import ServerBinary
from service.adapters.embedded.server import GUARD

#: Seconds within which a server must answer; it may have a long log of commands to read.
START_SECONDS = 60.0
#: How many workers of pytest-xdist have ports of their own.
MOST_WORKERS = 16


class RealServer:
    """A server on a port of its own; it ends with this process, however that ends."""

    def __init__(
        self,
        binary: ServerBinary,
        directory: Path,
        *,
        durable: bool = False,
        more: Sequence[str] = (),
    ) -> None:
        self._binary = binary
        self._directory = directory
        self._durable = durable
        #: Further lines of configuration.
        self._more = more
        self._guard: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        """Return where the server is, running or not."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def snapshot(self) -> Path:
        """Return where it saves its data, where it is asked to."""
        return self._directory / "dump.rdb"

    @property
    def socket(self) -> Path:
        """Return its socket in the file system."""
        return self._directory / "server.sock"

    def start(self) -> None:
        """Start it, on the same port every time, and wait until it answers."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._guard = subprocess.Popen(  # noqa: S603 - our own guard
            [sys.executable, "-I", "-S", GUARD, str(os.getpid()), self._binary.path],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._guard.stdin is not None
        self._guard.stdin.write(self._configuration().encode())
        self._guard.stdin.flush()
        self._wait()

    def kill(self) -> None:
        """End it without a warning, as a crash would."""
        os.kill(self._pid(), signal.SIGKILL)
        self._gone()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Keep it from answering; it goes on to accept connections."""
        pid = self._pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it as an operator would."""
        self._gone()

    def client(self) -> redis.Redis:
        """Return a client to look at the server with; to be closed."""
        return redis.Redis(
            port=self.port, socket_timeout=START_SECONDS, retry=Retry(NoBackoff(), 0)
        )

    def _pid(self) -> int:
        with self.client() as client:
            return int(client.info("server")["process_id"])

    def _gone(self) -> None:
        if self._guard is not None:
            self._guard.communicate()
            self._guard = None

    def _configuration(self) -> str:
        durable = "yes" if self._durable else "no"
        lines = [
            f'dir "{self._directory}"',
            *("bind 127.0.0.1", f"port {self.port}", f'unixsocket "{self.socket.name}"'),
            *('save ""', f"appendonly {durable}"),
            *self._more,
        ]
        return "\n".join(lines) + "\n\n"

    def _wait(self) -> None:
        end = time.monotonic() + START_SECONDS
        assert self._guard is not None
        with self.client() as client:
            while True:
                assert self._guard.poll() is None, "the server ended; its log is in stderr"
                try:
                    client.ping()
                except redis.RedisError:
                    assert time.monotonic() < end, "the server does not answer"
                    time.sleep(0.02)
                else:
                    return


def _test_ports() -> Iterator[int]:
    """Yield ports in an order of chance, those that no other worker of this run gets.

    They are below those that systems give to connections: none can take one before the server
    starts.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = list(range(10_000 + worker % MOST_WORKERS, 32_000, MOST_WORKERS))
    Random().shuffle(ports)  # noqa: S311 - nobody has to guess them
    return cycle(ports)


_ports = _test_ports()


def free_port() -> int:
    """Return a port of this machine that nobody listens on; the same one again after a thousand."""
    while True:
        port = next(_ports)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
