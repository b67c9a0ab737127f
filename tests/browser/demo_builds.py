"""Builds that the page is shown with: a family's, somebody else's, and a hostile one's."""

from datetime import timedelta
from typing import Any, Final

from service.cli.demo.stage import HISTORY, OWNER, TOOLS
from service.cli.history_files import read_history
from service.config.content import ToolsSettings
from service.config.settings import EventSettings, ReportSettings
from tests.serving import Scene
from tests.support import NOW, row

#: Whose builds they are: a family's, somebody's with few, and those of one with hostile words.
FAMILY: Final = OWNER
OTHER: Final = "ana"
HOSTILE: Final = '<b>mallory</b> & "co"'

#: Settings of the worker that builds them.
SECTIONS: Final[dict[str, Any]] = {
    "tools": ToolsSettings(paths=(TOOLS,)),
    "events": EventSettings(archive=True),
    # all tests of a process look at the same builds
    "reports": ReportSettings(ttl_seconds=86_400),
}

#: Markup that a page has to show as text.
ATTACK: Final = (
    '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
    "<style>*{display:none}</style><svg onload=window.hacked=1>"
)

_ASKED: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("Ines: which ferry do we take, and who meets aunt Vera?", {}),
    ("Tomas: what was the code of the key box?", {"strategy": "middle_out", "memory_tokens": 500}),
    ("Ines: what did we say about a coat?", {"model": "gpt-5", "strategy": "relevance"}),
    (
        "Ines: how much did we spend so far?",
        {
            "strategy": "importance",
            "max_tokens": 4_000,
            "reserve_tokens": 800,
            "memory_tokens": 700,
            "blocks": {"MOOD": "In a hurry, and glad about short answers."},
        },
    ),
)


async def fill(scene: Scene) -> None:
    """Give three owners histories and builds."""
    history = scene.builder.history
    await history.append(FAMILY, read_history(HISTORY.read_bytes()).rows)
    for number, (text, context) in enumerate(_ASKED):
        await ask(scene, FAMILY, text, f"demo-{number}", **{"memory_limit": 100, **context})
    await history.append(OTHER, [row(0, "human", "Ana's secret"), row(1, "ai", "Ana's answer")])
    await ask(scene, OTHER, "What did I tell you?", "ana-1")
    said = [row(0, "human", ATTACK, id=ATTACK[:60]), row(1, "ai", f"Is it {ATTACK}?")]
    await history.append(HOSTILE, said, conversation_id=ATTACK)
    await ask(scene, HOSTILE, ATTACK, f"{ATTACK}-1", conversation_id=ATTACK)


async def ask(
    scene: Scene,
    owner: str,
    text: str,
    request_id: str,
    *,
    conversation_id: str | None = None,
    **context: Any,
) -> str:
    """Build for an owner, and return the build's id once it can be seen."""
    content = {"current_input": text, "timestamp_utc": _later(), "context": context}
    found = await scene.built(
        owner, id=request_id, conversation_id=conversation_id, content=content
    )
    return str(found["build_id"])


def _later() -> str:
    """Return a time after all rows of the histories."""
    return (NOW + timedelta(days=400)).isoformat()
