"""Settings from a YAML file, and what is said of one that is wrong."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from service.config.load import load_settings
from service.config.settings import Settings
from service.errors import ConfigError

#: Writes ``config.yml`` into the working directory of the test.
Write = Callable[[str], object]

#: Loads the settings and returns what is wrong with them.
Problems = Callable[..., list[str]]


def test_problems_name_file_line_and_column(write: Write, problems: Problems) -> None:
    """Every problem is one line with its place, and all of them are told at once."""
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
        " as an integer",
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
