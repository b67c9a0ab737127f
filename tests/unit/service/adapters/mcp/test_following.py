"""The last listing is kept in a folder, and nothing that goes wrong there ends a worker."""

import json
from pathlib import Path

from structlog.testing import capture_logs

from service.adapters.mcp.following import FollowedServer, Snapshots
from service.adapters.tools.registry import InMemoryToolRegistry
from service.config.content import McpServerSettings
from service.ports.services import ServerTools
from tests.support import Noted

SERVER = McpServerSettings(name="git", command="x")
TOOL = {"type": "function", "function": {"name": "git__a"}}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """In a folder that is made; without one, nothing is kept."""
    kept = Snapshots(tmp_path / "a" / "b")
    assert kept.read(SERVER) == ()
    kept.write(SERVER, [TOOL])
    assert kept.read(SERVER) == (TOOL,)
    Snapshots().write(SERVER, [TOOL])
    assert Snapshots().read(SERVER) == ()


def test_other_patterns_make_it_useless(tmp_path: Path) -> None:
    """A tool that is denied by now must not come back."""
    Snapshots(tmp_path).write(SERVER, [TOOL])
    assert Snapshots(tmp_path).read(SERVER.model_copy(update={"deny": ("a",)})) == ()


def test_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    """Neither JSON that is broken nor tools that are none; a log names the file."""
    file = tmp_path / "git.json"
    allowed = [["*"], []]
    for text in ("[", "[]", json.dumps({"allowed": allowed, "tools": [5]}), "\ud83d"):
        file.write_text(text, errors="surrogatepass")
        with capture_logs() as logs:
            assert Snapshots(tmp_path).read(SERVER) == ()
        assert text == "[]" or str(file) in logs[0]["path"]


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """The tools are in effect all the same."""
    (tmp_path / "file").write_text("")
    with capture_logs() as logs:
        Snapshots(tmp_path / "file").write(SERVER, [TOOL])
    assert [each["event"] for each in logs] == ["tools.snapshot_unwritten"]


async def test_an_outage_is_logged_when_it_begins_and_when_it_ends() -> None:
    """However often the server was tried; each attempt is counted."""
    noted = Noted()
    server = FollowedServer(SERVER, Snapshots(), InMemoryToolRegistry(), noted)
    server._on_listed(ServerTools(SERVER.name, [TOOL]))
    with capture_logs() as logs:
        for _ in range(3):
            server._on_failed(OSError("away"))
        server._on_listed(ServerTools(SERVER.name, [TOOL]))

    assert [each["event"] for each in logs] == ["tools.unlisted", "tools.listed"]
    assert noted.counted == [
        "tool_refresh git changed",
        *["tool_refresh git failed"] * 3,
        "tool_refresh git unchanged",
    ]
