"""The clients in `examples/clients`, each in its own language, against a real worker."""

import asyncio
import json
import os
import shutil
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from service.wire.response import BuildResponse
from tests.e2e.commands import HUNG, Ctxb

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CLIENTS = Path(__file__).parents[2] / "examples" / "clients"

#: What has to arrive as it was sent: quotes, a backslash, a line break, and letters of four bytes.
INPUT = 'Where did "we" put the \\key?\nÜber 🪴'

#: A machine need not have it; what else clients need, CI installs.
OPTIONAL = "go"

#: How each is run, and what has to be there for it.
COMMANDS = {
    "ask.py": ((sys.executable,), ()),
    "ask.mjs": (("node",), ("node",)),
    "ask.go": (("go", "run"), ("go",)),
    "ask.sh": (("sh",), ("redis-cli", "jq")),
}


def skip_without_programs(name: str) -> None:
    """Skip a test where a program that its client needs isn't installed; in CI fail."""
    for program in COMMANDS[name][1]:
        if shutil.which(program) is None:
            if os.environ.get("CI") and program != OPTIONAL:
                pytest.fail(f"{program} is not installed, and CI has to try every client")
            pytest.skip(f"{program} is not installed")


async def run(name: str, url: str, folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run a client to its end; returns its exit code, and what it wrote."""
    process = await asyncio.create_subprocess_exec(
        *(*COMMANDS[name][0], str(CLIENTS / name), *arguments),
        cwd=folder,
        env={**os.environ, "REDIS_URL": url},
        stdout=PIPE,
        stderr=PIPE,
    )
    async with asyncio.timeout(HUNG):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def current_input(response: dict[str, Any]) -> str:
    """Return what the model would read as the human's words."""
    text: str = response["content"]["messages"][-1]["content"]
    return text.partition("<human_input>\n")[2].partition("\n</human_input>")[0]


@pytest.mark.parametrize("name", list(COMMANDS))
async def test_a_client_is_answered(name: str, on_bus: Ctxb, server_url: str) -> None:
    """Its words arrive whole, and the answer comes back whole; asked again, it is another one."""
    skip_without_programs(name)
    async with on_bus.worker():
        asked = [await run(name, server_url, on_bus.folder, "ana", INPUT) for _ in range(2)]

    for code, out, err in asked:
        assert code == 0, err
        response = json.loads(out)
        assert BuildResponse.model_validate(response).owner_key == "ana"
        assert response["content"]["status"] == "success"
        assert current_input(response) == INPUT
    first, second = (json.loads(out)["metadata"]["request_id"] for _, out, _ in asked)
    assert first != second


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "ask.sh"])
async def test_a_client_tells_of_a_refused_connection(
    name: str, tmp_path: Path, server_url: str
) -> None:
    """With a wrong password it ends with an error, and not as if there were an answer."""
    skip_without_programs(name)
    wrong = server_url.replace("@", "x@")
    code, out, err = await run(name, wrong, tmp_path, "ana", INPUT)

    assert code != 0
    assert out == ""
    assert "WRONGPASS" in err or "invalid username-password" in err
