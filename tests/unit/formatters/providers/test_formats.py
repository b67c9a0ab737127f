import json
from typing import get_args

import pytest

from formatters.providers.formats import FORMATS, build_provider_request
from service.wire.request import ContextOptions

MESSAGES = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]


def test_the_canonical_form_needs_no_other() -> None:
    """Callers of OpenAI's chat API send the messages themselves."""
    assert build_provider_request("openai", MESSAGES) is None


@pytest.mark.parametrize(
    ("form", "fields"),
    [
        ("openai_responses", ["instructions", "input"]),
        ("anthropic", ["system", "messages"]),
        ("gemini", ["systemInstruction", "contents"]),
    ],
)
def test_each_form_has_its_own_fields(form: str, fields: list[str]) -> None:
    """Without tools there is no field for them."""
    assert list(build_provider_request(form, MESSAGES) or ()) == fields


@pytest.mark.parametrize("form", ["openai_responses", "anthropic", "gemini"])
def test_the_longest_names_stay_as_they_are(form: str) -> None:
    """They have 64 characters with every provider; one more, and they are cut."""
    fits, longer = ("n" * length for length in (64, 65))
    bodies = {
        name: json.dumps(build_provider_request(form, MESSAGES, [{"function": {"name": name}}]))
        for name in (fits, longer)
    }

    assert f'"{fits}"' in bodies[fits]
    assert longer not in bodies[longer]


@pytest.mark.parametrize(
    ("form", "most"), [("openai_responses", 64), ("anthropic", 64), ("gemini", 256)]
)
def test_the_longest_ids_stay_as_they_are(form: str, most: int) -> None:
    """What is longer than a provider takes gets an id that fits."""
    fits, longer = ("i" * length for length in (most, most + 1))
    calls = [{"id": id_, "function": {"name": "f", "arguments": "{}"}} for id_ in (fits, longer)]
    results = [{"role": "tool", "tool_call_id": id_, "content": "x"} for id_ in (fits, longer)]
    called = {"role": "assistant", "content": "", "tool_calls": calls}
    body = json.dumps(build_provider_request(form, [*MESSAGES, called, *results]))

    assert f'"{fits}"' in body
    assert longer not in body


def test_every_form_that_can_be_requested_is_written() -> None:
    """The wire and the table name the same forms."""
    asked = get_args(get_args(ContextOptions.model_fields["format"].annotation)[0])

    assert set(asked) == set(FORMATS)
