"""The bounds of what summaries are made by."""

from collections.abc import Callable

import pytest

from service.config.load import describe, load_settings

#: Loads the settings and returns what is wrong with them.
Problems = Callable[..., list[str]]

LOCAL = {"kind": "openai", "model": "m", "base_url": "http://localhost:11434/v1"}


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        ({"kind": "magic"}, "summaries.summarizer.kind"),
        ({**LOCAL, "model": None}, "summarizer.model: must be given where"),
        ({**LOCAL, "base_url": None}, "summarizer.api_key: must be given where"),
        ({**LOCAL, "base_url": "localhost:11434"}, "summarizer.base_url: must begin with http"),
        ({**LOCAL, "base_url": "http:///v1"}, "summarizer.base_url: must begin with http"),
        ({**LOCAL, "api_key": "two words"}, "summarizer.api_key: must be ASCII"),
        ({**LOCAL, "api_key": "line\n"}, "summarizer.api_key: must be ASCII"),
        ({**LOCAL, "api_key": "schlüssel"}, "summarizer.api_key: must be ASCII"),
        ({**LOCAL, "api_key": ""}, "summarizer.api_key: must be ASCII"),
        ({"chunk_tokens": 255}, "summarizer.chunk_tokens"),
        ({"temperature": 3}, "summarizer.temperature"),
        ({"limit_field": "length"}, "summarizer.limit_field"),
    ],
)
def test_a_summarizer_that_could_not_work_is_refused(
    chosen: dict[str, object], problem: str, problems: Problems
) -> None:
    """Before anything is asked of it, and by name."""
    (line,) = problems(summaries={"summarizer": chosen})
    assert problem in line


@pytest.mark.parametrize(
    "chosen",
    [
        LOCAL,
        {"kind": "openai", "model": "m", "api_key": "key"},
        {"kind": "extractive", "model": "m", "temperature": None, "retries": 0},
    ],
)
def test_a_summarizer_that_can_work_is_taken(chosen: dict[str, object]) -> None:
    """A server may ask for no key, OpenAI's own needs no address."""
    settings = load_settings(None, summaries={"summarizer": chosen})
    assert settings.summaries.summarizer.model == "m"


def test_keys_are_masked() -> None:
    """So is a password in the address; the rest of the address is shown."""
    chosen = {**LOCAL, "base_url": "https://ana:hidden@host/v1", "api_key": "hidden"}
    settings = load_settings(None, summaries={"summarizer": chosen})
    shown = {entry.path: entry.value for entry in describe(settings)}

    assert shown["summaries.summarizer.base_url"] == "https://ana:***@host/v1"
    assert shown["summaries.summarizer.api_key"] == "***"
    assert "hidden" not in repr(settings)
