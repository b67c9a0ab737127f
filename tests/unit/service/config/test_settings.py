"""The bounds of settings."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from service.config.load import load_settings
from service.config.settings import Settings

#: Loads the settings and returns what is wrong with them.
Problems = Callable[..., list[str]]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"bus": {"lease_seconds": 1}}, "bus.heartbeat_seconds: must be less than"),
        ({"bus": {"heartbeat_seconds": 5}}, "bus.heartbeat_seconds: must be less than"),
        ({"bus": {"lease_seconds": float("inf")}}, "finite number"),
        ({"bus": {"socket_timeout_seconds": 0}}, "bus.socket_timeout_seconds"),
        ({"bus": {"result_ttl_seconds": 0.0005}}, "bus.result_ttl_seconds: must be between 0.001"),
        ({"bus": {"result_ttl_seconds": 1e10}}, "bus.result_ttl_seconds: must be between 0.001"),
        ({"bus": {"default_timeout_ms": 10**13}}, "bus.default_timeout_ms: must be at most"),
        ({"reports": {"ttl_seconds": 1e10}}, "reports.ttl_seconds: must be between 0.001"),
        ({"bus": {"max_deliveries": 0}}, "bus.max_deliveries"),
        ({"bus": {"reply_prefixes": [""]}}, "bus.reply_prefixes.0"),
        ({"bus": {"reply_prefixes": ["context."]}}, "'context.' would let replies overwrite"),
        ({"bus": {"reply_prefixes": ["c"]}}, "'context.build.'"),
        ({"bus": {"reply_prefixes": ["context.build.reply"]}}, "'context.build.'"),
        ({"bus": {"reply_prefixes": ["ok.", "llm.results"]}}, "'llm.results'"),
        ({"bus": {"prefix": "p.", "reply_prefixes": ["p."]}}, "'p.context.build.'"),
        ({"bus": {"prefix": "context.reply."}}, "'context.reply.context.build.'"),
        ({"worker": {"concurrency": 0}}, "worker.concurrency"),
        ({"worker": {"consumer": "a b"}}, "worker.consumer: must have no blanks"),
        ({"worker": {"consumer": "w\u00f6rker"}}, "only printable ASCII characters"),
        ({"worker": {"consumer": "waiting:3f"}}, "must not begin with 'waiting:', as lanes"),
        ({"budget": {"max_tokens": 10, "reserve_tokens": 10}}, "budget.reserve_tokens: must be"),
        ({"budget": {"strategy": 5}}, "budget.strategy: must be a name, a name with parameters"),
        ({"budget": {"strategy": []}}, "budget.strategy: must be a name, a name with parameters"),
        ({"budget": {"strategy": ""}}, "budget.strategy: must be a name, a name with parameters"),
        ({"budget": {"strategy": "{name"}}, "budget.strategy: must be a name, or JSON"),
        ({"preset": "recalls"}, "'classic' or 'recall', not 'recalls'; did you mean recall?"),
        ({"preset": "recall", "memory": 5}, "memory: must hold keys and values"),
        ({"memory": {"message_chars": 19}}, "memory.message_chars"),
        ({"memory": {"timezone": "mars"}}, "memory.timezone"),
        ({"prompts": {"sections": [{"label": "a"}]}}, "prompts.sections.0: needs either text or"),
        (
            {"prompts": {"sections": [{"label": "a", "text": "b", "file": "c"}]}},
            "prompts.sections.0: needs either text or file",
        ),
        ({"prompts": {"sections": [{"label": "", "text": "b"}]}}, "prompts.sections.0.label"),
        (
            {"prompts": {"injections": [{"text": "a"}]}},
            "prompts.injections.0: needs either every_n_turns or on_token_threshold",
        ),
        ({"prompts": {"injections": [{"text": "a", "every_n_turns": 0}]}}, "0.every_n_turns"),
        ({"prompts": {"reload_seconds": 0}}, "prompts.reload_seconds"),
        ({"log": {"level": "loud"}}, "log.level"),
        ({"worker": {"concurrency": True}}, "worker.concurrency: must be a number"),
        ({"gather": {"tools_timeout_seconds": True}}, "tools_timeout_seconds: must be a number"),
        ({"memory": {"limit": True}}, "memory.limit: must be a number"),
        ({"budget": {"estimate_factors": {"m": True}}}, "estimate_factors.m: must be a number"),
        ({"budget": {"estimate_factors": True}}, "estimate_factors: must hold keys and values"),
        ({"bux": {}}, "bux: unknown key; did you mean bus?"),
    ],
)
def test_values_out_of_bounds_are_refused(
    given: dict[str, object], problem: str, problems: Problems
) -> None:
    """A value that could not work is refused by name."""
    (line,) = problems(**given)
    assert problem in line


@pytest.mark.parametrize(
    "given",
    [
        {"bus": {"prefix": "p.", "reply_prefixes": ["context.build.", "answers."]}},
        {"bus": {"reply_prefixes": []}},
        {"budget": {"strategy": "a_strategy_of_a_plugin"}},
        {"budget": {"max_tokens": 10, "reserve_tokens": 0}},
        {"memory": {"limit": 0, "message_chars": None}},
        {"bus": {"result_ttl_seconds": 0.001, "default_timeout_ms": 1}},
        {"bus": {"reply_ttl_seconds": 36_500 * 86_400}},
        {"reports": {"ttl_seconds": 0}},
        {"worker": {"consumer": "worker-1.a:b"}},
        {"worker": {"consumer": None}},
        {"worker": {"shutdown_timeout_seconds": 0}},
        {"log": {"level": "WARNING"}},
    ],
)
def test_values_within_bounds_are_taken(given: dict[str, dict[str, Any]]) -> None:
    """Values at the bounds are taken."""
    loaded = load_settings(None, **given)

    for section, values in given.items():
        taken = getattr(loaded, section).model_dump()
        for name, value in values.items():
            wanted = tuple(value) if isinstance(value, list) else value
            assert taken[name] in (wanted, str(wanted).lower())


@pytest.mark.parametrize(
    ("given", "guard"), [(False, "off"), ("OFF", "off"), (True, "gutter"), ("on", "gutter")]
)
def test_words_that_yaml_reads_as_booleans_switch_the_guard(given: Any, guard: str) -> None:
    """Without quotes, "off" is false in YAML."""
    assert Settings(guard=given).guard == guard


@pytest.mark.parametrize("given", ["gutters", 0.5, None, []])
def test_a_guard_has_two_states(given: Any) -> None:
    """Nothing else is one."""
    with pytest.raises(ValidationError):
        Settings(guard=given)
