"""Tests for `service.conversation.context_config`."""

from typing import Any

import pytest

from service.conversation.context_config import CompactionConfig, ContextConfig


def test_defaults_are_those_of_the_source() -> None:
    """8000 tokens, 2000 of them for the answer."""
    config = ContextConfig()

    assert (config.max_tokens, config.reserve_tokens, config.available) == (8000, 2000, 6000)
    assert config.strategy.name == config.truncation_strategy == "oldest_first"
    assert config.datetime_in == "message"
    assert config.compaction == CompactionConfig(
        enabled=True, trigger=0.9, summary_budget_ratio=0.25, recent_preserve_ratio=0.25
    )


@pytest.mark.parametrize(
    ("fields", "reported"),
    [
        ({"max_tokens": 0}, "max_tokens has to be a whole number of at least 1, not 0"),
        ({"reserve_tokens": -1}, "reserve_tokens"),
        ({"reserve_tokens": 8001}, "reserve_tokens, 8001, exceeds max_tokens, 8000"),
        ({"max_tokens": 1000}, "reserve_tokens, 2000 by default, .+ pass a .+, such as 250"),
        ({"max_tokens": "8"}, "max_tokens has to be .+, not '8'"),
        ({"max_tokens": True}, "max_tokens has to be .+, not True"),
        ({"max_tokens": float("nan")}, "max_tokens has to be .+, not nan"),
        ({"max_tokens": 8000.0}, "max_tokens has to be a whole number"),
        ({"reserve_tokens": None}, "reserve_tokens has to be .+, not None"),
        ({"compaction": {"enabled": False}}, "compaction has to be a CompactionConfig, not {"),
        ({"datetime_in": "messages"}, r"not 'messages'; did you mean message\?"),
        ({"truncation_strategy": "newest_first"}, "newest_first"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], reported: str) -> None:
    """An unknown strategy too, which the source took for another one."""
    with pytest.raises(ValueError, match=reported):
        ContextConfig(**fields)


def test_an_unknown_setting_is_named() -> None:
    """With the one that was probably meant."""
    with pytest.raises(TypeError, match=r"'max_token'; use ContextConfig.+ did you mean max_tok"):
        ContextConfig(max_token=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"did you mean enabled\?"):
        CompactionConfig(enable=False)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["trigger", "summary_budget_ratio", "recent_preserve_ratio"])
@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), "0.5", True, None])
def test_shares_lie_between_none_and_all(name: str, share: Any) -> None:
    """Each of the three."""
    with pytest.raises(ValueError, match=name):
        CompactionConfig(**{name: share})


def test_all_may_be_reserved() -> None:
    """Then nothing is available."""
    assert ContextConfig(max_tokens=5, reserve_tokens=5).available == 0
