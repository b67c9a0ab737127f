"""What a provider is asked to do on its side, in the form that it takes."""

from typing import Any

import pytest

from formatters.providers.context_management import (
    ContextEdit,
    ContextManagement,
    find_unsupported_edits,
    format_management,
)
from formatters.providers.formats import build_provider_request
from tests.validity.forms import VALIDATORS

MESSAGES = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]
TRIGGER = {"trigger": {"type": "input_tokens", "value": 60_000}, "pause_after_compaction": True}
ANTHROPIC = ContextEdit("compact_20260112", TRIGGER)
OPENAI = ContextEdit("compaction", {"compact_threshold": 200_000})
NEW = ContextEdit("forget_20290101", {"what": ["a", None]})


def test_the_source_documents_example() -> None:
    """By default a provider is asked to compact, in the words of the source."""
    asked = {"edits": [{"type": "compact_20260112"}]}
    assert ContextManagement().as_dict() == asked
    edits = (ContextEdit(strategy="compact_20260112"),)
    assert ContextManagement(edits=edits).as_dict() == asked


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ("anthropic", {"edits": [ANTHROPIC.as_dict(), NEW.as_dict()]}),
        ("openai_responses", [OPENAI.as_dict(), NEW.as_dict()]),
        ("gemini", None),
    ],
)
def test_a_form_gets_its_own_edits_and_new_ones(form: str, field: Any) -> None:
    """Known edits of other providers are left out; those that nobody knows go through."""
    management = ContextManagement((ANTHROPIC, OPENAI, NEW))
    body = build_provider_request(form, MESSAGES, management=management)

    assert body is not None
    assert body.get("context_management") == field
    assert VALIDATORS[form](body, []) == []
    plain = build_provider_request(form, MESSAGES)
    assert {key: value for key, value in body.items() if key != "context_management"} == plain


@pytest.mark.parametrize(
    ("form", "places"),
    [("anthropic", [1]), ("openai_responses", [0]), ("gemini", [0, 1, 2]), ("openai", [0, 1, 2])],
)
def test_it_is_known_what_a_form_leaves_out(form: str, places: list[int]) -> None:
    """By the place of each edit."""
    assert find_unsupported_edits(form, ContextManagement((ANTHROPIC, OPENAI, NEW))) == places


def test_nothing_is_asked_where_nothing_is_left() -> None:
    """An empty field would be refused."""
    assert format_management("anthropic", ContextManagement((OPENAI,))) == {}
    assert build_provider_request("openai", MESSAGES, management=ContextManagement()) is None
