"""Settings from variables and YAML files, and what is reported of those that are wrong."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from service.config.load import load_settings
from service.config.settings import Settings
from service.errors import ConfigError

#: Loads the settings and returns what is wrong with them.
Problems = Callable[..., list[str]]


def test_variables_hold_every_kind_of_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables give numbers, null, lists and mappings; an empty one counts as unset."""
    monkeypatch.setenv("CTXB_MEMORY__LIMIT", "null")
    monkeypatch.setenv("CTXB_BUS__LEASE_SECONDS", "7.5")
    monkeypatch.setenv("CTXB_BUS__PREFIX", "")
    monkeypatch.setenv("CTXB_TOOLS__PATHS", '["a", "b"]')
    monkeypatch.setenv("CTXB_BUDGET__MODEL_LIMITS", '{"GPT-9": {"max_input": 5}}')
    monkeypatch.setenv("CTXB_BUDGET__STRATEGY", "middle_out")
    settings = load_settings()
    assert (settings.memory.limit, settings.bus.lease_seconds) == (None, 7.5)
    assert settings.tools.paths == (Path("a"), Path("b"))
    assert settings.budget.model_limits["GPT-9"].max_input == 5
    assert settings.budget.strategy == "middle_out"


def test_variables_of_a_section_and_of_its_settings_are_merged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That of the setting takes precedence, and may reach into a mapping."""
    monkeypatch.setenv("CTXB_MEMORY__LIMIT", "3")
    monkeypatch.setenv("CTXB_MEMORY", '{"limit": 1, "max_rows": 2}')
    monkeypatch.setenv("CTXB_BUDGET__MODEL_LIMITS__M", '{"max_input": 5}')
    monkeypatch.setenv("ctxb_budget__model_limits__m__max_output", "4")
    settings = load_settings()
    assert (settings.memory.limit, settings.memory.max_rows) == (3, 2)
    limit = settings.budget.model_limits["m"]
    assert (limit.max_input, limit.max_output) == (5, 4)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CTXB_BUS_URL", "CTXB_BUS__URL"),
        ("CTXB_BUZ__URL", "CTXB_BUS__URL"),
        ("ctxb_log_level", "CTXB_LOG__LEVEL"),
        ("CTXB_USER_DEFAULTS_PROMPTS_FRIENDS_PROFILE_CONTENT", None),
    ],
)
def test_mistaken_variables_are_named(
    name: str, meant: str | None, monkeypatch: pytest.MonkeyPatch, problems: Problems
) -> None:
    """A variable that means a setting but misses it is an error that says which is meant."""
    monkeypatch.setenv(name, "x")
    meant = meant or "CTXB_USER_DEFAULTS__PROMPTS__FRIENDS_PROFILE__CONTENT"
    assert problems() == [f"{name}: unknown variable; did you mean {meant}?"]


def test_unknown_sections_in_variables_are_named(
    monkeypatch: pytest.MonkeyPatch, problems: Problems
) -> None:
    """A variable with two underscores is ours, and an error where nothing is like it."""
    monkeypatch.setenv("CTXB_COLOUR__WHEEL", "x")
    assert problems() == ["CTXB_COLOUR__WHEEL: unknown variable"]


@pytest.mark.parametrize(
    "name", ["CTXB_PORT", "CTXB_SERVICE_HOST", "CTXB_REDIS_PORT_6379_TCP_ADDR", "CTXB_BUS_PORT"]
)
def test_variables_of_kubernetes_are_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that Kubernetes adds for services of our name stop nothing."""
    monkeypatch.setenv(name, "tcp://10.0.0.1:6379")
    assert load_settings() == Settings()


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("CTXB_WORKER__CONCURRENCY", "0", "worker.concurrency: input should be greater than"),
        ("CTXB_WORKER__CONCURENCY", "3", "did you mean worker.concurrency?"),
        ("CTXB_TOOLS__PATHS", "a,b", "tools.paths: must be a list; in a variable, one in JSON"),
        ("CTXB_BUDGET__MODEL_LIMITS", "x", "budget.model_limits: must hold keys and values"),
        ("CTXB_GATHER", "[]", "gather: must hold keys and values"),
        ("CTXB_MEMORY", '{"max_rows": 0}', "memory.max_rows: input should be greater than"),
    ],
)
def test_problems_name_the_variable(
    name: str, value: str, problem: str, monkeypatch: pytest.MonkeyPatch, problems: Problems
) -> None:
    """What is wrong with a variable is said under its name, and under that of the setting."""
    monkeypatch.setenv(name, value)
    (line,) = problems()
    assert line.startswith(f"{name}  ")
    assert problem in line


#: Writes ``config.yml`` into the working directory of the test.
Write = Callable[[str], object]


def test_problems_name_file_line_and_column(write: Write, problems: Problems) -> None:
    """Every problem is one line with its place, and all of them are reported at once."""
    write(
        "# a comment\nbus:\n  # another\n  ur: redis://localhost\n  max_backlog: many\n"
        "  reply_prefixes: [a., '']\nbudget:\n  model_limits:\n    m: {max_inputs: 3}\n"
        "store:\n  url: ${NOT_SET_ANYWHERE}\nmemory: {limit: 3, limit: 4}\n"
    )
    assert sorted(problems()) == [
        "config.yml:11:3  store.url: the variable NOT_SET_ANYWHERE is not set",
        "config.yml:12:20  memory.limit: is given twice",
        "config.yml:4:3  bus.ur: unknown key; did you mean bus.url?",
        "config.yml:5:3  bus.max_backlog: input should be a valid integer, unable to parse string"
        " as an integer: 'many'",
        "config.yml:6:24  bus.reply_prefixes.1: string should have at least 1 character",
        "config.yml:9:5  budget.model_limits.m.max_input: is missing",
        "config.yml:9:9  budget.model_limits.m.max_inputs: unknown key; did you mean"
        " budget.model_limits.m.max_input?",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("bus: [", "config.yml:1:7  expected the node content"),
        ("- a\n- b\n", "config.yml:1:1  must hold keys and values"),
        ("bus: {url: !!python/name:os.system x}", "config.yml:1:12  could not determine"),
        ("a: 1\n---\nb: 2\n", "config.yml:2:1  but found another document"),
        ("a: &a [*a]\n", "config.yml: no usable YAML: "),
        ("a: \x00", "config.yml: no usable YAML: "),
        ("bus: {url: 2024-99-99}", "config.yml:1:7  bus.url: month must be in 1..12"),
    ],
)
def test_what_is_no_yaml_is_an_error(
    text: str, problem: str, write: Write, problems: Problems
) -> None:
    """A file that cannot be read as settings gives an error with its place, not a trace."""
    write(text)
    assert problems()[0].startswith(problem)


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(text=st.text(st.sampled_from("ab:[]{}-&*!|>'\"#${}% \n\t\x00é,?~0.<")))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever a file holds, the answer is settings or a ConfigError."""
    Path("config.yml").write_text(f"bus:\n  {text}", encoding="utf-8")
    with suppress(ConfigError):
        load_settings()


def test_broken_yaml_quotes_nothing(write: Write) -> None:
    """An error about the file's form doesn't carry its lines, which may hold a password."""
    write("bus:\n  url: redis://:hunter2@db ]: [\n")
    with pytest.raises(ConfigError) as raised:
        load_settings()
    assert raised.value.__cause__ is None
    assert "hunter2" not in str(raised.value)


def test_a_file_in_another_encoding_is_an_error(problems: Problems) -> None:
    """A file that is not UTF-8 is refused, and a byte order mark is not."""
    Path("config.yml").write_bytes("user_defaults: {}  # ä".encode("latin-1"))
    assert problems()[0].startswith("config.yml: cannot be read")
    Path("config.yml").write_bytes(b"\xef\xbb\xbfmemory: {limit: 3}")
    assert load_settings().memory.limit == 3


@pytest.mark.parametrize("text", ["", "# nothing\n", "bus:\nuser_defaults:\n  prompts:\n", "{}"])
def test_empty_sections_hold_the_defaults(text: str, write: Write) -> None:
    """A section with nothing below it is as good as none."""
    write(text)
    assert load_settings().model_dump() == Settings().model_dump()


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${NAME}", "abc"),
        ("a-${NAME}-${NAME}", "a-abc-abc"),
        ("${UNSET_ONE:-other}", "other"),
        ("${EMPTY:-other}", "other"),
        ("${NAME:-other}", "abc"),
        ("'${UNSET_ONE:-}'", ""),
        ("'x${EMPTY}'", "x"),
        ("$$", "$"),
        ("$${NAME}", "${NAME}"),
        ("pa$word$", "pa$word$"),
        ("${HOLDS_REFERENCE}", "${NAME}"),
        ("${FROM_FILE}", "file"),
        ("'${UNSET_ONE:-a: [b, #c]}'", "a: [b, #c]"),
    ],
)
def test_values_can_hold_variables(
    written: str, value: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """References in values are replaced, once, after the YAML was read."""
    monkeypatch.setenv("NAME", "abc")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("HOLDS_REFERENCE", "${NAME}")
    Path(".env").write_text("FROM_FILE=file\n")
    write(f"bus:\n  prefix: {written}\n")
    assert load_settings().bus.prefix == value


def test_replaced_values_are_read_as_numbers_and_null(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reference may stand for a number, a switch or nothing at all."""
    monkeypatch.setenv("SIZE", "7")
    monkeypatch.setenv("SWITCH", "no")
    write(
        "memory: {limit: '${SIZE}'}\nrecorder: {enabled: '${SWITCH}'}\n"
        "bus:\n  url: ${UNSET_ONE:-}\n  default_timeout_ms: ${SIZE}\n"
    )
    settings = load_settings()
    assert (settings.memory.limit, settings.recorder.enabled) == (7, False)
    assert (settings.bus.url, settings.bus.default_timeout_ms) == (None, 7)


@pytest.mark.parametrize("written", ["${", "${}", "${1A}", "${A", "'${A:b}'"])
def test_malformed_references_are_errors(written: str, write: Write, problems: Problems) -> None:
    """What looks like a reference and is none is an error with its place."""
    write(f"bus:\n  prefix: {written}\n")
    (line,) = problems()
    assert line.startswith("config.yml:2:3  bus.prefix: '${' needs a variable's name")


def test_keys_are_read_as_written(write: Write) -> None:
    """Words that YAML takes for switches or numbers can be keys."""
    write("budget: {model_limits: {on: {max_input: 1}, 3.5: {max_input: 2}}}")
    assert set(load_settings().budget.model_limits) == {"on", "3.5"}


def test_the_source_systems_name_is_read(
    write: Write, monkeypatch: pytest.MonkeyPatch, problems: Problems
) -> None:
    """memory.history_context_size is memory.limit, in every source, with its origin."""
    write("memory:\n  history_context_size: 7\n")
    settings = load_settings()
    assert settings.memory.limit == 7
    assert settings.origins == {"memory.limit": "config.yml:2:3"}
    monkeypatch.setenv("CTXB_MEMORY__HISTORY_CONTEXT_SIZE", "8")
    assert load_settings().memory.limit == 8
    assert load_settings(memory={"history_context_size": 9}).memory.limit == 9
    monkeypatch.setenv("CTXB_MEMORY__LIMIT", "10")
    assert problems() == [
        "CTXB_MEMORY__HISTORY_CONTEXT_SIZE  memory.history_context_size:"
        " another name of memory.limit, which is set as well"
    ]
