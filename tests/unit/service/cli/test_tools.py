"""Servers of tools on the command line: what each costs, and which is away."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from service.cli.exits import Exit
from service.cli.tools import check_server, print_servers, read_tools
from service.ports.services import ServerTools, ToolSource
from tests.support import SEARCH

Ctxb = Callable[..., Result]

OWN = {"type": "function", "function": {"name": "git__log", "description": "Tell what was done."}}


def test_a_servers_tools_stand_behind_the_others() -> None:
    """As in the registry, none takes the place of another; those of earlier are stale."""
    files = [ToolSource("tools.yml", lambda: [SEARCH])]
    git = ServerTools("git", [OWN, SEARCH], error="no answer in time")
    listed = read_tools(files, [git, ServerTools("again", [OWN])], len)

    reported = [(tool.name, tool.source, tool.stale) for tool in listed]
    assert reported == [("web_search", "tools.yml", False), ("git__log", "git", True)]


def test_each_server_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """With what its tools cost, and why they are those of earlier."""
    servers = [ServerTools("git", [OWN]), ServerTools("web", error="\x1b[2Jrefused")]
    print_servers(servers, read_tools([], servers, lambda _: 7))

    shown = capsys.readouterr()
    assert shown.out == "git: 1 tool, 7 tokens\n"
    assert "web: 0 tools, 0 tokens of an earlier listing: \N{REPLACEMENT CHARACTER}" in shown.err


def test_a_server_is_right_if_all_of_it_can_be_offered(capsys: pytest.CaptureFixture[str]) -> None:
    """Each thing that is wrong has a line."""
    assert check_server(ServerTools("git", [OWN]), lambda _: 7)
    assert not check_server(ServerTools("git", [OWN], refused=["git: tool 1: bad"]), len)
    assert not check_server(ServerTools("web", error="refused"), len)

    shown = capsys.readouterr()
    assert shown.out.startswith("ok: git: 1 tool, 7 tokens\nok: git: 1 tool,")
    assert shown.err == "invalid: git: tool 1: bad\ninvalid: web: refused\n"


def test_a_server_that_is_away_is_reported(ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it listed before is shown as stale; a check ends with 3."""
    Path("kept").mkdir()
    Path("kept/git.json").write_text(json.dumps({"allowed": [["*"], []], "tools": [OWN]}))
    server = {"name": "git", "command": "/no/such/command"}
    monkeypatch.setenv("CTXB_TOOLS__MCP", json.dumps([server]))
    monkeypatch.setenv("CTXB_TOOLS__SNAPSHOTS", "kept")

    (tool,) = json.loads(ctxb("tools", "ls", "--json").stdout)
    assert (tool["name"], tool["source"], tool["stale"]) == ("git__log", "git", True)
    assert "git (stale)" in ctxb("tools", "ls").stdout
    result = ctxb("tools", "check")
    assert result.exit_code == Exit.CONFIGURATION
    assert "invalid: git: FileNotFoundError" in result.stderr
