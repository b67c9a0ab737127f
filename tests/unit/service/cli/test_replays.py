"""What people are told of a build that was repeated."""

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import Result

from service.audit.compare import NameChanges
from service.audit.replay import Difference, Replay, Verdict, Versions
from service.cli.exits import Exit
from service.cli.replays import print_replay

SAME: dict[str, Any] = {
    "build_id": "bld_1",
    "identical": True,
    "messages": (),
    "decisions": (),
    "rows": NameChanges(),
    "input": False,
    "profile": False,
    "tools": NameChanges(),
    "warnings": NameChanges(),
    "settings": (),
    "strategy": False,
    "package": None,
    "guard": None,
}


def test_the_same_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing has changed there is nothing more to say."""
    print_replay(Replay(**SAME))
    assert capsys.readouterr().out.splitlines() == [
        "identical: bld_1 built again sends the same messages and tools"
    ]


def test_each_change_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """What differs comes first, then what may be the cause."""
    changes: dict[str, Any] = {
        "identical": False,
        "messages": (
            Difference(role="user", block="SHARED_MEMORY", then=2, now=2),
            Difference(role="user", block="MOOD", then=5, now=None),
            Difference(role="tool", block=None, then=None, now=7),
        ),
        "decisions": (Verdict(message_id="m1", then=("kept", "fits"), now=(None, None)),),
        "rows": NameChanges(added=("m7",), removed=("m2",), changed=("m3", "m4", "m5")),
        "input": True,
        "profile": True,
        "tools": NameChanges(changed=("look",)),
        "warnings": NameChanges(added=("tools_unavailable",)),
        "settings": ("memory.limit",),
        "strategy": True,
        "package": Versions(then="0.1.0", now="0.2.0"),
        "guard": Versions(then=1, now=2),
    }
    print_replay(Replay(**{**SAME, **changes}))
    assert capsys.readouterr().out.splitlines() == [
        "different: bld_1 built again does not send the same",
        "  message 3, [SHARED_MEMORY]: other words",
        "  message [MOOD]: sent only then",
        "  message tool: sent only now",
        "  row m1: kept fits then, undecided now",
        "  warning new: tools_unavailable",
        "  rows changed: m3 … m5 (3)",
        "  rows erased: m2",
        "  rows since then, left out: m7",
        "  tool changed: look",
        "  the input's row has another text",
        "  the profile is another",
        "  the strategy or a parameter of it is another",
        "  setting memory.limit: not the same here",
        "  guard: version 1 then, 2 now",
        "  context-builder: version 0.1.0 then, 0.2.0 now",
    ]


def test_a_replay_needs_bus_and_store(
    ctxb: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a bus that workers share, or a store that lasts, it says which is lacking."""
    result = ctxb("replay", "bld_1")
    assert result.exit_code == Exit.CONFIGURATION
    assert "CTXB_BUS__URL" in result.stderr
    monkeypatch.setenv("CTXB_BUS__URL", "redis://localhost:1/0")
    result = ctxb("replay", "bld_1")
    assert result.exit_code == Exit.CONFIGURATION
    assert "CTXB_STORE__URL" in result.stderr
