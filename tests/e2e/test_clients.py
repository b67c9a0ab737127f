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

from formatters.guard import unquoted
from service.wire.response import BuildResponse
from tests.e2e.commands import HUNG, Ctxb

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CLIENTS = Path(__file__).parents[2] / "examples" / "clients"

#: Must arrive as it was sent: quotes, a backslash, a line break, and letters of four bytes.
INPUT = 'Where did "we" put the \\key?\nÜber 🪴'

#: A machine need not have it; what else clients need, CI installs.
OPTIONAL = "go"

#: How each is run, and what has to be there for it.
NODE = (("node",), ("node",))
COMMANDS = {
    "ask.py": ((sys.executable,), ()),
    "ask.mjs": NODE,
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


async def run(
    name: str, url: str, folder: Path, *arguments: str, bus_url: str = ""
) -> tuple[int, str, str]:
    """Run a client to its end; returns its exit code, and what it wrote. The URLs may be empty."""
    process = await asyncio.create_subprocess_exec(
        *(*COMMANDS.get(name, NODE)[0], str(CLIENTS / name), *arguments),
        cwd=folder,
        env={**os.environ, "REDIS_URL": url, "CTXB_BUS__URL": bus_url},
        stdout=PIPE,
        stderr=PIPE,
    )
    async with asyncio.timeout(HUNG):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def current_input(response: dict[str, Any]) -> str:
    """Return the human's words, without the gutter before lines that aren't plain."""
    text: str = response["content"]["messages"][-1]["content"]
    return unquoted(text.partition("<human_input>\n")[2].partition("\n</human_input>")[0])


@pytest.mark.parametrize("name", list(COMMANDS))
async def test_a_client_finds_the_bus_of_a_worker_in_its_folder(name: str, ctxb: Ctxb) -> None:
    """Without the variable; the worker has a server of its own."""
    skip_without_programs(name)
    async with ctxb.worker():
        code, out, err = await run(name, "", ctxb.folder, "ana", INPUT)

    assert code == 0, err
    assert json.loads(out)["content"]["status"] == "success"


async def test_the_client_for_node_can_be_imported(ctxb: Ctxb) -> None:
    """Nothing is run by that, and the program that the page shows gets its answer."""
    skip_without_programs("ask.mjs")
    page = (CLIENTS.parents[1] / "docs" / "clients.md").read_text("utf-8")
    program = page.partition("```js\n")[2].partition("```")[0]
    shutil.copy(CLIENTS / "ask.mjs", ctxb.folder)
    (ctxb.folder / "program.mjs").write_text(program, "utf-8")
    async with ctxb.worker():
        code, out, err = await run(str(ctxb.folder / "program.mjs"), "", ctxb.folder)

    assert code == 0, err
    assert out.startswith("success kept (")


async def test_the_client_for_node_publishes_rows_and_reads_reports(ctxb: Ctxb) -> None:
    """As the page shows: the row gets into the history, and the report isn't damaged."""
    skip_without_programs("ask.mjs")
    page = (CLIENTS.parents[1] / "docs" / "clients.md").read_text("utf-8")
    (program,) = (each for each in page.split("```js\n") if "inflateSync(packed)" in each)
    shutil.copy(CLIENTS / "ask.mjs", ctxb.folder)
    (ctxb.folder / "program.mjs").write_text(program.partition("```")[0], "utf-8")
    out = ""
    async with ctxb.worker(), asyncio.timeout(HUNG):
        while "run_1_1" not in out:  # the first time, there may be no row and no report yet
            code, out, err = await run(str(ctxb.folder / "program.mjs"), "", ctxb.folder)
            assert code == 0, err


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


@pytest.mark.parametrize("name", list(COMMANDS))
async def test_a_client_sends_a_history_tools_and_a_budget(
    name: str, on_bus: Ctxb, server_url: str
) -> None:
    """From files, one of which is larger than an argument of a command may be."""
    skip_without_programs(name)
    said = [
        {"role": ("user", "assistant")[number % 2], "content": f"Word {number}. " + "word " * 40}
        for number in range(800)
    ]
    system = {"role": "system", "content": "You are somebody."}
    tools = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
    (on_bus.folder / "said.json").write_text(json.dumps([system, *said]))
    (on_bus.folder / "tools.json").write_text(json.dumps(tools))
    files = ("--history", "said.json", "--tools", "tools.json")
    options = ("--explain", *files, "--max-tokens", "4000")
    async with on_bus.worker():
        code, out, err = await run(name, server_url, on_bus.folder, "ana", INPUT, *options)

    assert code == 0, err
    content = json.loads(out)["content"]
    assert content["usage"]["budget"] == 4_000
    assert [tool["function"]["name"] for tool in content["tools"]] == ["find"]
    assert "Word 799." in json.dumps(content["messages"])
    assert content["decisions"]
    assert not [each for each in content["warnings"] if each["code"].startswith("unknown")]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "ask.sh"])
async def test_a_client_reports_a_refused_connection(
    name: str, tmp_path: Path, server_url: str
) -> None:
    """With a wrong password it ends with an error, and not as if there were an answer."""
    skip_without_programs(name)
    wrong = server_url.replace("@", "x@")
    code, out, err = await run(name, wrong, tmp_path, "ana", INPUT)

    assert code != 0
    assert out == ""
    assert "WRONGPASS" in err or "invalid username-password" in err


@pytest.mark.parametrize("name", list(COMMANDS))
async def test_a_client_reports_an_error_response(name: str, on_bus: Ctxb, server_url: str) -> None:
    """It prints the response and exits with 1; the bus may be in the worker's variable, too."""
    skip_without_programs(name)
    async with on_bus.worker():
        options = ("--max-tokens", "1")
        code, out, err = await run(
            name, "", on_bus.folder, "ana", INPUT, *options, bus_url=server_url
        )

    assert code == 1, err
    assert json.loads(out)["content"]["status"] == "error"


@pytest.mark.parametrize("name", list(COMMANDS))
async def test_a_client_without_a_bus_says_what_to_do(name: str, tmp_path: Path) -> None:
    """In one line, without a stack trace."""
    skip_without_programs(name)
    code, out, err = await run(name, "", tmp_path, "ana", INPUT)

    assert (code, out) == (1, "")
    assert err.splitlines()[0] == (
        "no worker in this folder (.ctxb/bus.url is missing): "
        "start `ctxb worker` here, or set REDIS_URL"
    )
    assert len(err.splitlines()) == 1 or name == "ask.go"  # `go run` adds the exit code


@pytest.mark.parametrize("name", list(COMMANDS))
async def test_a_client_without_a_server_says_what_to_do(name: str, tmp_path: Path) -> None:
    """It names the place in the program's or the library's words, and the fix, in two lines."""
    skip_without_programs(name)
    code, out, err = await run(name, "redis://127.0.0.1:1", tmp_path, "ana", INPUT)

    assert (code, out) == (1, "")
    assert "127.0.0.1:1" in err
    assert "start `ctxb worker` here, or correct REDIS_URL" in err
    assert len(err.splitlines()) <= 2


@pytest.mark.parametrize("arguments", [("ana", "Hi", "--maxtokens", "9"), ("ana",), ("ana", "Hi")])
@pytest.mark.parametrize("name", list(COMMANDS))
async def test_a_client_that_is_called_wrongly_shows_its_usage(
    name: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """An unknown option, too few arguments, or a file that isn't there: no stack trace."""
    skip_without_programs(name)
    files = ("--history", "missing.json") if len(arguments) == 2 else ()
    code, out, err = await run(name, "redis://127.0.0.1:1", tmp_path, *arguments, *files)

    assert code != 0
    assert out == ""
    assert "missing.json" in err if files else "usage" in err.lower()
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 4 or name == "ask.go"  # Go lists all options


@pytest.mark.parametrize("tokens", ["2,000", "0", "1.5", ""])
@pytest.mark.parametrize("name", list(COMMANDS))
async def test_a_client_refuses_a_budget_that_is_no_whole_number(
    name: str, tokens: str, tmp_path: Path
) -> None:
    """Rather than to build without it."""
    skip_without_programs(name)
    code, out, err = await run(name, "", tmp_path, "ana", INPUT, "--max-tokens", tokens)

    assert code == (1 if name == "ask.go" else 2)  # `go run` ends with 1 whatever the program does
    assert out == ""
    assert "--max-tokens must be a whole number above 0" in err


@pytest.mark.parametrize("name", list(COMMANDS))
async def test_a_client_passes_on_what_a_model_wants_to_recall(
    name: str, on_bus: Ctxb, server_url: str
) -> None:
    """A context offers the tool, and its arguments, as they are, fetch messages back."""
    skip_without_programs(name)
    async with on_bus.worker():
        for text in (INPUT, "And the pot?"):
            code, out, err = await run(
                name, server_url, on_bus.folder, "ana", text, "--recall-tool"
            )
            assert code == 0, err
        content = json.loads(out)["content"]
        assert [tool["function"]["name"] for tool in content["tools"]] == ["recall"]
        arguments = json.dumps({"grep": "Über", "exclude_build": content["build_id"]})
        code, out, err = await run(name, server_url, on_bus.folder, "ana", arguments, "--recall")
        assert code == 0, err
        assert json.loads(out)["content"]["messages"] == []  # it was in that context
        code, out, err = await run(
            name, server_url, on_bus.folder, "ana", '{"grep": "Über"}', "--recall"
        )
        assert code == 0, err

    (message,) = json.loads(out)["content"]["messages"]
    assert unquoted(message["text"]).endswith(INPUT)
