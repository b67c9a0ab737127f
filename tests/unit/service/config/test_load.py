"""Where settings come from, and how they are shown."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from service.config.load import describe, load_settings
from service.config.settings import BusSettings, Settings
from service.errors import ConfigError
from service.observe.logs import mask_urls

#: Writes ``config.yml`` into the working directory of the test.
Write = Callable[[str], object]

#: Loads the settings and returns what is wrong with them.
Problems = Callable[..., list[str]]


def test_without_sources_there_are_the_defaults() -> None:
    """No file and no variable leave the defaults, whose origin is said."""
    settings = load_settings()
    assert settings == Settings()
    assert {setting.origin for setting in describe(settings)} == {"default"}


def test_settings_in_a_list_are_shown_as_they_are_written(write: Write) -> None:
    """Each with what was set of it."""
    write("prompts: {sections: [{label: Rules, file: rules.md}]}")
    shown = {setting.path: setting.value for setting in describe(load_settings())}

    assert shown["prompts.sections"] == [{"label": "Rules", "file": "rules.md", "priority": 0}]


def test_the_order_of_the_sources(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments take precedence over variables, these over .env, this over YAML, key by key."""
    write("worker: {concurrency: 1, consumer: a}\nbus: {max_backlog: 1, max_deliveries: 1}\n")
    Path(".env").write_text("CTXB_WORKER__CONCURRENCY=2\nCTXB_BUS__MAX_BACKLOG=2\n")
    monkeypatch.setenv("CTXB_WORKER__CONCURRENCY", "3")
    settings = load_settings(worker={"concurrency": 4})
    assert (settings.worker.concurrency, settings.worker.consumer) == (4, "a")
    assert (settings.bus.max_backlog, settings.bus.max_deliveries) == (2, 1)
    assert load_settings().worker.concurrency == 3


def test_origins_are_reported(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value in effect is shown with the place that it comes from."""
    write("memory:\n  limit: 5\nbudget:\n  model_limits:\n    gpt-9.1: {max_input: 7}\n")
    Path(".env").write_text("CTXB_LOG__LEVEL=debug\n")
    monkeypatch.setenv("CTXB_BUS", '{"max_backlog": 9}')
    monkeypatch.setenv("CTXB_GATHER__DEGRADE_HISTORY", "true")
    found = {setting.path: setting for setting in describe(load_settings(recorder={}))}
    origins = {path: entry.origin for path, entry in found.items() if entry.origin != "default"}
    assert origins == {
        "bus.max_backlog": "CTXB_BUS",
        "budget.model_limits.gpt-9.1.max_input": "config.yml:5:15",
        "memory.limit": "config.yml:2:3",
        "gather.degrade_history": "CTXB_GATHER__DEGRADE_HISTORY",
        "log.level": ".env: CTXB_LOG__LEVEL",
    }
    assert found["gather.degrade_history"].value is True


def test_sections_can_be_given_as_objects() -> None:
    """An argument may be a section that was built in code; what it leaves out stays open."""
    settings = load_settings(bus=BusSettings(max_backlog=3))
    assert settings.bus.max_backlog == 3
    assert settings.origins == {"bus.max_backlog": "argument"}


def test_arguments_are_left_as_they_are() -> None:
    """Loading changes no mapping that it was given."""
    given = {"history_context_size": 3}
    assert load_settings(memory=given).memory.limit == 3
    assert given == {"history_context_size": 3}


def test_the_file_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """CTXB_CONFIG names the file, and an argument takes precedence over it."""
    Path("a.yml").write_text("memory: {limit: 1}")
    Path("b.yml").write_text("memory: {limit: 2}")
    monkeypatch.setenv("CTXB_CONFIG", "a.yml")
    assert load_settings().memory.limit == 1
    assert load_settings(Path("b.yml")).memory.limit == 2


@pytest.mark.parametrize("variable", ["CTXB_CONFIG", "CTXB_ENV_FILE"])
def test_a_named_file_must_exist(
    variable: str, monkeypatch: pytest.MonkeyPatch, problems: Problems
) -> None:
    """A file that is named and missing is an error; an empty name counts as none."""
    monkeypatch.setenv(variable, "missing.file")
    (problem,) = problems()
    assert problem.startswith("missing.file: cannot be read")
    assert problem.endswith(f"; {variable} names it")
    monkeypatch.setenv(variable, "")
    load_settings()


def test_the_env_file_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """CTXB_ENV_FILE names the .env file, and the one of the working directory is left alone."""
    Path(".env").write_text("CTXB_MEMORY__LIMIT=1")
    Path("other.env").write_text("# ours\nCTXB_MEMORY__LIMIT=2\nPATH_OF_OTHERS=x\nALONE\n")
    monkeypatch.setenv("CTXB_ENV_FILE", "other.env")
    assert load_settings().memory.limit == 2


def test_settings_built_directly_read_nothing(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings made in code know neither files nor variables."""
    write("memory: {limit: 1}")
    monkeypatch.setenv("CTXB_MEMORY__LIMIT", "2")
    assert Settings().memory.limit == 20


@pytest.mark.parametrize(
    ("section", "setting", "problem"),
    [
        ("memory", {"limit": "none"}, "'none'; did you mean null?"),
        ("worker", {"concurrency": "none"}, "as an integer: 'none'"),
        ("memory", {"memory_limit": 3}, "unknown key; did you mean memory.limit?"),
    ],
)
def test_other_spellings_get_a_suggestion(
    section: str, setting: dict[str, object], problem: str, problems: Problems
) -> None:
    """Null only where it is allowed; a key may repeat the name of its section."""
    (found,) = problems(**{section: setting})
    assert found.startswith(f"argument {section}.")
    assert found.endswith(problem)


def test_unknown_arguments_are_answered_with_the_known_ones(problems: Problems) -> None:
    """Also the one that isn't a setting."""
    (found,) = problems(config="x")
    assert found.startswith("argument config: unknown key; arguments are path, preset, guard, ")
    (found,) = problems(preset="recalls")
    assert found.startswith("argument preset: ")


def test_settings_cannot_be_changed() -> None:
    """Settings are immutable."""
    settings = load_settings()
    with pytest.raises(ValidationError):
        settings.memory.limit = 3  # type: ignore[misc]


def test_secrets_are_masked_when_shown() -> None:
    """No way of showing settings shows a password."""
    settings = load_settings(
        bus={"url": "redis://:hunter2@db:6379/0"}, store={"url": SecretStr("hunter2")}
    )
    shown = {setting.path: setting.value for setting in describe(settings)}
    assert shown["bus.url"] == "redis://:***@db:6379/0"
    assert shown["store.url"] == "***"
    assert "hunter2" not in f"{settings!r}{settings}{settings.model_dump_json()}{shown}"


def test_problems_come_in_the_order_of_their_places(
    write: Write, monkeypatch: pytest.MonkeyPatch, problems: Problems
) -> None:
    """A file is read from top to bottom; what is elsewhere comes after it."""
    write("memory:\n  limit: many\n  x: 1\n" + "\n" * 6 + "log: {level: loud, y: 1}\nbus: {z: 1}\n")
    Path(".env").write_text("CTXB_STORE__URK=x\n")
    monkeypatch.setenv("CTXB_BUS__MAX_BACKLOG", "none")
    places = [line.split()[0] for line in problems(bus={"url": 3})]
    assert places == [
        *("config.yml:2:3", "config.yml:3:3", "config.yml:10:7", "config.yml:10:20"),
        *("config.yml:11:7", ".env:", "CTXB_BUS__MAX_BACKLOG", "argument"),
    ]


def test_problems_show_no_secret(problems: Problems) -> None:
    """A problem with a secret is reported without it."""
    lines = problems(bus={"url": ["hunter2"]}, store={"ur": "hunter2"})
    assert len(lines) == 2
    assert "hunter2" not in str(lines)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("redis://u:p@h:1/0", "redis://u:***@h:1/0"),
        ("redis://u:p/w@rd@h:1/0", "redis://u:***@h:1/0"),
        ("postgresql+asyncpg://u:123@h/db?token=a&x=1", "postgresql+asyncpg://u:***@h/db?token=***&x=1"),
        ("at http://h:80/x?mail=me@x.y", "at http://h:80/x?mail=me@x.y"),
        ("http://h:80 me@x.y, u:p@h", "http://h:80 me@x.y, u:p@h"),
        ('"redis://u:p@h","a":"b@c"', '"redis://u:***@h","a":"b@c"'),
    ],
)  # fmt: skip
def test_masking_leaves_the_rest(text: str, masked: str) -> None:
    """Masking hides only the password of the URLs in a text."""
    assert mask_urls(text) == masked


def test_values_are_shown_as_plain_data() -> None:
    """What is shown can be written as YAML or JSON."""
    shown = {
        setting.path: setting.value
        for setting in describe(
            load_settings(tools={"paths": ["a"]}, worker={"heartbeat_file": "b"})
        )
    }
    assert (shown["tools.paths"], shown["worker.heartbeat_file"]) == (["a"], "b")
    assert (shown["bus.url"], shown["budget.model_limits"]) == (None, {})


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("CTXB_BUS__URL: redis://localhost/0", "CTXB_…"),
        ("CTXB_BUS__URL redis://localhost/0", "CTXB_…"),
        ("CTXB_BUS__URL", "CTXB_BUS__URL"),
    ],
)
def test_a_line_of_the_env_file_without_a_value_is_an_error(line: str, name: str) -> None:
    """With its number: else a worker would do without the setting."""
    Path(".env").write_text(f"# CTXB_LOG__LEVEL\n{line}\n")
    with pytest.raises(ConfigError, match=rf"\.env:2: has no value; write {name}=value"):
        load_settings()
