"""Commands that need no server, in this process."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from service.cli import config as config_commands
from service.cli import worker
from service.cli.exits import Exit
from service.config.load import load_settings
from tests.support import hide_package

Ctxb = Callable[..., Result]

TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {
            "type": "object",
            "properties": {"at": {"type": "string"}, "long": {"type": "boolean"}},
            "required": ["at"],
        },
    },
}


def test_build_prints_the_messages(ctxb: Ctxb) -> None:
    """By default a build prints the messages that a model would get, and only those."""
    result = ctxb("build", "--owner", "ana", "--input", "Where is my hat?")
    assert result.exit_code == Exit.OK
    assert "# You are Nexus" in result.stdout
    assert "<human_input>\nWhere is my hat?\n</human_input>" in result.stdout


@pytest.mark.parametrize(
    ("url", "arguments", "noted"),
    [
        (None, [], True),
        ("memory://", ["--json"], True),
        (None, ["--history", "h.json"], False),
        ("sqlite:///ctxb.db", [], False),
    ],
)
def test_a_build_without_a_store_says_so(
    ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch, url: str | None, arguments: list[str], noted: bool
) -> None:
    """On stderr, unless the request brought a history or the store outlives the command."""
    if url:
        monkeypatch.setenv("CTXB_STORE__URL", url)
    Path("h.json").write_text("[]")
    if url and url.startswith("sqlite"):
        assert ctxb("db", "upgrade").exit_code == Exit.OK
    result = ctxb("build", "-o", "ana", "-i", "Hi", *arguments)
    assert result.exit_code == Exit.OK
    assert ("no stored history was read" in result.stderr) is noted
    assert "no stored history" not in result.stdout


def test_build_prints_one_json_document(ctxb: Ctxb) -> None:
    """With --json a build prints the response as it would be on the bus."""
    request = json.dumps({"owner_key": "ana", "content": {"current_input": "Hi"}})
    result = ctxb("build", "--request", "-", "--json", "--explain", stdin=request)
    response = json.loads(result.stdout)
    assert response["content"]["status"] == "success"
    assert response["owner_key"] == "ana"


def test_build_explains_itself(ctxb: Ctxb) -> None:
    """With --explain a build shows messages, tokens and decisions about the history given."""
    Path("h.json").write_text(json.dumps([{"role": "user", "content": "Old news", "id": "old"}]))
    result = ctxb(
        "build", "-o", "a", "-i", "Hi", "--history", "h.json", "--explain", "--profile", "Likes tea"
    )
    assert result.exit_code == Exit.OK
    for part in ("[FRIENDS_INFO]", "CORE_IDENTITY", "available", "old", "kept 1, dropped 0"):
        assert part in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--max-tokens", "500"], Exit.BUDGET, "budget_exceeded: "),
        (["--memory-tokens", "3"], Exit.USAGE, "--memory-tokens"),
        (["--max-tokens", "-1"], Exit.USAGE, "--max-tokens"),
        (["--strategy", "luck"], Exit.FAILED, "'luck' is no strategy"),
        (["--history", "missing"], Exit.USAGE, "No such file"),
        (["--typo"], Exit.USAGE, "--typo"),
        (["--owner", ""], Exit.USAGE, "1 to 128 characters"),
        (["--owner", "x" * 129], Exit.USAGE, "1 to 128 characters"),
    ],
)
def test_build_fails_with_the_cause(
    arguments: list[str], code: Exit, said: str, ctxb: Ctxb
) -> None:
    """A build that comes to nothing says why on stderr, and by its exit code."""
    result = ctxb("build", "--owner", "ana", "--input", "Hi", *arguments)
    assert result.exit_code == code
    assert result.stdout == ""
    assert said in result.stderr


def test_errors_are_json_too(ctxb: Ctxb) -> None:
    """With --json an error response is printed on stdout as well."""
    result = ctxb("build", "-o", "ana", "-i", "Hi", "--max-tokens", "500", "--json")
    assert result.exit_code == Exit.BUDGET
    assert json.loads(result.stdout)["content"]["error"]["code"] == "budget_exceeded"


def test_a_request_that_nobody_can_be_answered_for_fails(ctxb: Ctxb) -> None:
    """Without a readable owner there is no response, just the error."""
    result = ctxb("build", "--request", "-", stdin='{"content": {}}')
    assert result.exit_code == Exit.FAILED
    assert "/owner_key" in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["history", "show", "--owner", "a"],
        ["history", "export", "--owner", "a"],
        ["history", "import", "h.jsonl", "--owner", "a"],
        ["db", "current"],
        ["db", "upgrade"],
    ],
)
def test_a_store_in_memory_is_refused(command: list[str], ctxb: Ctxb) -> None:
    """What a store in memory would forget at once is refused, with the way to keep it."""
    Path("h.jsonl").touch()
    result = ctxb(*command)
    assert result.exit_code == Exit.CONFIGURATION
    assert "CTXB_STORE__URL=sqlite:///" in result.stderr


def test_a_dry_run_stores_nothing(ctxb: Ctxb) -> None:
    """A dry run reads the file, reports errors, and needs no store."""
    Path("h.jsonl").write_text('{"role": "HUMAN"}\n{"role": 3}\n')
    result = ctxb("history", "import", "h.jsonl", "--owner", "a", "--dry-run")
    assert result.exit_code == Exit.FAILED
    assert "line 2: role: 3 cannot be used" in result.stderr
    result = ctxb("history", "import", "h.jsonl", "--owner", "a", "--dry-run", "--skip-bad")
    assert result.exit_code == Exit.OK
    assert result.stdout == "1 row can be stored; nothing was\n"
    assert "skipped: line 2" in result.stderr


def test_history_is_nobodys_without_an_owner(ctxb: Ctxb) -> None:
    """An empty owner key is wrong usage, not an owner."""
    for command in (["import", "-"], ["export"], ["show"]):
        assert ctxb("history", *command, "--owner", "").exit_code == Exit.USAGE


@pytest.mark.parametrize("form", ["jsonl", "openai"])
def test_roles_that_are_never_shown_are_not_stored(form: str, ctxb: Ctxb) -> None:
    """In either form, instructions are left out and unknown roles refused; both are reported."""
    rows = [{"role": role, "content": "a"} for role in ("system", "DEVELOPER", "alien", "user")]
    Path("h").write_text("\n".join(map(json.dumps, rows)))
    command = ["history", "import", "h", "--owner", "a", "--dry-run", "--format", form]
    refused = ctxb(*command)
    assert refused.exit_code == Exit.FAILED
    assert 'role: "alien" cannot be used' in refused.stderr
    result = ctxb(*command, "--skip-bad")
    assert result.stdout == "1 row can be stored; nothing was\n"
    skipped, left_out = result.stderr.splitlines()
    assert skipped.startswith("skipped: line 3")
    assert left_out == "left out: 2 system messages"


def test_a_file_of_history_is_decided_on_as_in_a_request(ctxb: Ctxb) -> None:
    """The same list gives the same ids and decisions by --history and in ``past``."""
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    past = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Where is my hat?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "in the hall"},
        {"role": "assistant", "content": "In the hall."},
        {"role": "assistant", "content": "Anything else?"},
    ]
    content = {"current_input": "No", "context": {"past": past, "memory_limit": 2}}
    Path("h.json").write_text(json.dumps(past))
    Path("h.jsonl").write_text("\n".join(map(json.dumps, past)))
    Path("r.json").write_text(json.dumps({"owner_key": "ana", "content": content}))
    by_file = ("build", "--owner", "ana", "--input", "No", "--memory-limit", "2", "--history")
    results = [
        ctxb(*command, "--explain", "--json")
        for command in (
            ("build", "--request", "r.json"),
            (*by_file, "h.json"),
            (*by_file, "h.jsonl"),
        )
    ]
    one, *others = [json.loads(each.stdout)["content"]["decisions"] for each in results]

    assert [each["message_ids"] for each in one][:2] == [["row_0"], ["row_1", "row_2", "row_3"]]
    assert others == [one, one]
    assert "Where is my hat?" in ctxb(*by_file, "h.json", "--explain").stdout


def test_a_request_that_is_no_json_is_named(ctxb: Ctxb) -> None:
    """By its file."""
    Path("r.json").write_text("{bad")
    result = ctxb("build", "--request", "r.json")

    assert result.exit_code == Exit.FAILED
    assert "r.json: not JSON" in result.stderr


@pytest.mark.parametrize("url", ["", "memory://"])
def test_send_needs_a_bus(url: str, ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a bus that others share, sending is refused with the way to name one."""
    monkeypatch.setenv("CTXB_BUS__URL", url)
    result = ctxb("send", "--owner", "a", "--input", "Hi")
    assert result.exit_code == Exit.CONFIGURATION
    assert "CTXB_BUS__URL" in result.stderr


def test_tools_are_listed(ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tool is listed with its size, parameters and file; of two with one name the last."""
    Path("tools").mkdir()
    Path("tools/a.json").write_text(json.dumps([TOOL]))
    Path("tools/b.yml").write_text(json.dumps({"tools": [TOOL]}))
    Path("tools/notes.txt").write_text("no tools")
    monkeypatch.setenv("CTXB_TOOLS__PATHS", '["tools"]')
    (tool,) = json.loads(ctxb("tools", "ls", "--json").stdout)
    tokens = tool.pop("tokens")
    assert tool == {
        "name": "look",
        "parameters": ["at*", "long"],
        "source": "tools/b.yml",
        "stale": False,
    }
    shown = ctxb("tools", "ls").stdout
    assert "at*, long" in shown
    assert shown.endswith(f"1 tool, {tokens} tokens; * marks required parameters\n")


def test_tools_are_checked_one_by_one(ctxb: Ctxb) -> None:
    """A bad file doesn't keep the others from being checked."""
    Path("bad.json").write_text('[{"type": "function"}]')
    Path("good.json").write_text(json.dumps([TOOL]))
    result = ctxb("tools", "check", "bad.json", "good.json")
    assert result.exit_code == Exit.CONFIGURATION
    assert "bad.json: tool 0: /function must be an object" in result.stderr
    assert "ok: good.json: 1 tool, " in result.stdout
    assert ctxb("tools", "check", "good.json").exit_code == Exit.OK
    assert "no tools in the settings" in ctxb("tools", "check").stderr
    Path("none.json").write_text("[]")
    empty = ctxb("tools", "check", "none.json", "good.json")
    assert (empty.exit_code, "warning: none.json: no tools found" in empty.stderr) == (0, True)


def test_models_are_listed(ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the start of their names, those of the settings among them, with the table's origin."""
    monkeypatch.setenv("CTXB_BUDGET__MODEL_LIMITS", '{"GPT-5-own": {"max_input": 7}}')
    document = json.loads(ctxb("models", "ls", "gpt-5", "--json").stdout)
    rows = {row["name"]: row for row in document["models"]}
    assert rows["gpt-5"] == {
        "name": "gpt-5",
        "max_input": 272_000,
        "max_output": 128_000,
        "tokenizer": "o200k_base",
        "exact": True,
    }
    assert rows["gpt-5-own"]["max_input"] == 7
    assert "claude-opus-5" not in rows
    shown = ctxb("models", "ls").stdout
    assert "o200k_base*1.5" in shown
    assert shown.endswith(f"; shipped limits: {document['source']}, {document['date']}\n")


def test_any_models_limits_can_be_requested(ctxb: Ctxb) -> None:
    """A name without its own row shows what it gets; an unknown one is reported."""
    (row,) = json.loads(ctxb("models", "ls", "openai/gpt-5-2025", "--json").stdout)["models"]
    assert (row["name"], row["max_input"]) == ("openai/gpt-5-2025", 272_000)
    result = ctxb("models", "ls", "mystery")
    assert (result.exit_code, result.stdout) == (Exit.FAILED, "")
    assert "no limits of a model 'mystery'" in result.stderr


def test_settings_are_shown_with_their_origin(ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every value in effect is shown with where it comes from, and no secret is."""
    Path("c.yml").write_text("memory: {limit: 5}\n")
    monkeypatch.setenv("CTXB_BUS__URL", "redis://:hunter2@db:6379/0")
    shown = ctxb("-c", "c.yml", "config", "show").stdout
    assert "c.yml:1:10" in shown
    assert "hunter2" not in shown
    found = json.loads(ctxb("-c", "c.yml", "config", "show", "--json").stdout)
    settings = {each["path"]: (each["value"], each["origin"]) for each in found}
    assert settings["memory.limit"] == (5, "c.yml:1:10")
    assert settings["bus.url"] == ("redis://:***@db:6379/0", "CTXB_BUS__URL")
    assert settings["bus.prefix"] == ("", "default")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("memory: {limit: many}", "c.yml:1:10  memory.limit"),
        ("budget: {strategy: luck}", "'luck' is no strategy"),
        ("budget: {strategy: {name: oldest_first, x: 1}}", "c.yml:1:21  budget.strategy: "),
        ("tools: {paths: [missing.yml]}", "tools.paths: missing.yml: there is no such file"),
        ("prompts: {identity_file: missing.md}", "prompts.identity_file: missing.md: there is no"),
        ("prompts: {sections: [{label: x, file: x.md}]}", "prompts.sections: x.md: there is no"),
        ("bus: {url: 'localhost:6379'}", "bus.url: 'localhost' is unknown"),
        ("bus: {url: '127.0.0.1:6379'}", "bus.url: '127.0.0.1' is unknown"),
        ("bus: {url: 'redis://h:99999/0'}", "c.yml:1:7  bus.url: host and port cannot be read"),
        ("bus: {url: 'redis://h/x'}", "c.yml:1:7  bus.url: the database after the host"),
        ("bus: {url: 'redis+cluster://h/x'}", "bus.url: the database after the host"),
        ("bus: {url: 'redis://h?x=1'}", "c.yml:1:7  bus.url: its options (x) cannot be used"),
        ("bus: {url: 'unix://'}", "c.yml:1:7  bus.url: names no socket; one is unix:///run/"),
        ("bus: {url: redis://h, tls: {ca_file: x}}", "c.yml:1:29  bus.tls: TLS is used only if"),
        ("bus: {url: redis}", "c.yml:1:7  bus.url: 'redis' is no URL; a URL begins with redis://"),
        ("store: {url: memory}", "store.url: 'memory' is no URL; a URL begins with memory://\n"),
        ("store: {url: 'mysql://h/d'}", "store.url: 'mysql' is unknown"),
        ("store: {url: ctxb.db}", "; did you mean sqlite:///ctxb.db?\n"),
        ("store: {url: sqlite//ctxb.db}", "; did you mean sqlite:///ctxb.db?\n"),
        ("store: {url: /data/h.sqlite3}", "; did you mean sqlite:////data/h.sqlite3?\n"),
        ("store: {url: me.secret}", "sqlite, sqlite+aiosqlite\n"),
        ("store: {url: 'sqlite:ctxb.db'}", "c.yml:1:9  store.url: cannot be read; one is sqlite"),
        ("store: {url: 'sqlite://ctxb.db'}", "c.yml:1:9  store.url: names no file; one is"),
        ("prompts: {injections: [{text: x}]}", "c.yml:1:24  prompts.injections.0: needs either"),
        ("budget: {max_tokens: 5}", "c.yml:1:10  budget.max_tokens: requests without options"),
        ("budget: {reserve_tokens: 9000}", "a reserve of 9000 tokens leaves nothing of 8000"),
    ],
)
def test_settings_that_cannot_work_are_invalid(text: str, problem: str, ctxb: Ctxb) -> None:
    """Validation finds what would fail later, and names its place."""
    Path("c.yml").write_text(text)
    result = ctxb("config", "validate", "c.yml")
    assert result.exit_code == Exit.CONFIGURATION
    assert problem in result.stderr


@pytest.mark.parametrize(
    ("text", "package", "extra"),
    [
        ("store: {url: 'postgresql://x/y'}", "asyncpg", "postgres"),
        ("recall: {semantic: true}", "onnxruntime", "semantic"),
    ],
)
def test_a_missing_extra_is_found(
    text: str, package: str, extra: str, ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By validation, and by a worker before it starts a server of its own."""
    hide_package(monkeypatch, package)
    monkeypatch.delattr(worker, "open_bus")
    Path("config.yml").write_text(text)
    for command in (["config", "validate"], ["worker"]):
        result = ctxb(*command)
        assert result.exit_code == Exit.CONFIGURATION
        assert f"needs the extra {extra}: pip install 'PATH[{extra}]'" in result.stderr


def test_a_budget_with_an_unknown_model_is_a_warning(ctxb: Ctxb) -> None:
    """Such a model has a limit all the same."""
    Path("config.yml").write_text("budget: {model: gtp-4o}")
    result = ctxb("config", "validate")
    assert result.exit_code == Exit.OK
    assert "warning: the limit of 'gtp-4o' is not known; 100000" in result.stderr
    assert "did you mean gpt-4o" in result.stderr


def test_a_system_message_beyond_the_limit_of_unset_budgets_is_a_warning(ctxb: Ctxb) -> None:
    """All requests may have budgets of their own."""
    Path("identity.md").write_text("word " * 7000)
    Path("config.yml").write_text("prompts: {identity_file: identity.md}")
    result = ctxb("config", "validate")
    assert result.exit_code == Exit.OK
    assert "warning: requests without options of their own can't be built" in result.stderr


def test_settings_that_work_are_valid(ctxb: Ctxb) -> None:
    """Validation says which file it found right, or that it was the settings in effect."""
    Path("c.yml").write_text("memory: {limit: 5}")
    assert "ok: c.yml" in ctxb("config", "validate", "c.yml").stdout
    assert "ok: the settings" in ctxb("config", "validate").stdout


@pytest.mark.parametrize(
    "url",
    [
        "memory://",
        "redis://me:secret@h/2?protocol=3",
        "rediss://h?ssl_check_hostname=False",
        "redis+cluster://h:7000",
        "unix:///run/redis.sock?db=1",
    ],
)
def test_urls_of_a_bus_that_work_are_valid(url: str, ctxb: Ctxb) -> None:
    """Nothing connects to them."""
    Path("c.yml").write_text(f"bus: {{url: '{url}'}}")
    assert "ok: c.yml" in ctxb("config", "validate", "c.yml").stdout


def test_outdated_settings_are_reported(ctxb: Ctxb) -> None:
    """Validation and the doctor show them, other commands log them, and none fails."""
    Path("config.yml").write_text("bus: {socket_timeout: 3}")
    outdated = "config.yml:1:7  bus.socket_timeout: is called bus.socket_timeout_seconds now"

    checked = ctxb("config", "validate")
    assert (checked.exit_code, checked.stderr) == (Exit.OK, f"warning: {outdated}\n")

    first, *_ = json.loads(ctxb("doctor", "--json").stdout)
    assert (first["what"], first["state"], first["found"]) == ("settings", "warn", outdated)

    (logged,) = ctxb("config", "show").stderr.splitlines()
    assert (json.loads(logged)["event"], json.loads(logged)["warning"]) == (
        "settings.outdated",
        outdated,
    )


def test_the_command_line_says_who_it_is(ctxb: Ctxb) -> None:
    """The version is printed, and the exit codes are in the help."""
    assert ctxb("--version").stdout.startswith("ctxb ")
    assert "4 no answer in time" in ctxb("--help").stdout


def test_the_probe_is_a_command_too(ctxb: Ctxb) -> None:
    """The probe works after global options as well, with its own options."""
    Path("beat").touch()
    assert ctxb("--log-level", "debug", "healthcheck", "--file", "beat").exit_code == Exit.OK
    assert ctxb("healthcheck").exit_code == Exit.FAILED


def test_a_file_of_settings_is_written_once(ctxb: Ctxb) -> None:
    """It can be used as it is; a second one does not take its place."""
    assert ctxb("config", "init").exit_code == Exit.OK
    assert ctxb("config", "validate").exit_code == Exit.OK
    Path("config.yml").write_text("bus: {prefix: mine.}\n")

    again = ctxb("config", "init", "--with-schema")

    assert again.exit_code == Exit.FAILED
    assert "config.yml exists already" in again.stderr
    assert Path("config.yml").read_text() == "bus: {prefix: mine.}\n"
    assert not Path("config.schema.json").exists()


@pytest.mark.parametrize(
    ("terminal", "options", "answer", "preset"),
    [
        (True, [], "\n", "recall"),
        (True, [], "n\n", "classic"),
        (True, ["--preset", "classic"], "", "classic"),
        (False, [], "", "classic"),
        (False, ["--preset", "recall"], "", "recall"),
    ],
)
def test_a_file_of_settings_is_for_a_preset(
    ctxb: Ctxb,
    terminal: bool,
    options: list[str],
    answer: str,
    preset: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A terminal is asked, unless an option says which."""
    monkeypatch.setattr(config_commands, "is_terminal", lambda: terminal)

    result = ctxb("config", "init", *options, stdin=answer)

    assert result.exit_code == Exit.OK
    assert ("Use the preset recall" in result.stderr) is (terminal and not options)
    assert load_settings(Path("config.yml")).preset == preset


def test_a_file_of_settings_can_name_its_schema(ctxb: Ctxb) -> None:
    """Which is written next to it, and is the one that is printed."""
    assert ctxb("config", "init", "my.yml", "--with-schema").exit_code == Exit.OK
    first = Path("my.yml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=my.schema.json"
    printed = ctxb("config", "schema").stdout
    assert Path("my.schema.json").read_text() == printed
    assert ctxb("config", "init", "no/such/folder.yml").exit_code == Exit.FAILED
