"""Settings from variables, and variables that miss one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from service.config.load import load_settings
from service.config.settings import Settings

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
