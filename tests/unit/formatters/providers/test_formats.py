from typing import get_args

import pytest

from formatters.providers.formats import FORMATS, provider_request
from service.request_content import ContextOptions

MESSAGES = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]


def test_the_canonical_form_needs_no_other() -> None:
    """Whoever calls OpenAI's chat API sends the messages themselves."""
    assert provider_request("openai", MESSAGES) is None


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
    assert list(provider_request(form, MESSAGES) or ()) == fields


def test_every_form_that_can_be_asked_for_is_written() -> None:
    """The wire and the table name the same forms."""
    asked = get_args(get_args(ContextOptions.model_fields["format"].annotation)[0])

    assert set(asked) == set(FORMATS)
