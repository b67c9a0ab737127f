import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.adapters.summarizers.openai import read_answer
from service.errors import SummarizerError


def completion(content: Any, **choice: Any) -> bytes:
    """Return the body of a chat completion."""
    return json.dumps({"choices": [{"message": {"content": content}, **choice}]}).encode()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (completion(" Ana has a cat.\n"), "Ana has a cat."),
        (completion("One. Two and", finish_reason="length"), "One."),
        (completion("- a\n- b and", finish_reason="length"), "- a"),
        (completion("no end in sight", finish_reason="length"), "no end in sight"),
        (completion("猫。犬と", finish_reason="length"), "猫。"),
        (completion("One. Two and", finish_reason="stop"), "One. Two and"),
        (completion("\n<think>She has?</think>\n\nAna has a cat."), "Ana has a cat."),
        (completion("half \ud83d pair"), "half \ufffd pair"),
    ],
)
def test_the_text_of_an_answer(body: bytes, text: str) -> None:
    """Whole sentences, as far as the answer was cut off; what is no text is repaired."""
    assert read_answer(body) == text


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "no JSON"),
        (b"<html>", "no JSON"),
        (b"\xff\xfe\x00", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "no chat completion"),
        (b'{"choices": []}', "no chat completion"),
        (b'{"choices": {"0": 1}}', "no chat completion"),
        (b'{"choices": [{"message": null}]}', "no chat completion"),
        (b'{"error": {"message": "sk-secret"}}', "no chat completion"),
        (completion(None), "no text"),
        (completion(["parts"]), "no text"),
        (completion(" \n"), "no text"),
        (completion("<think>Let me see. What", finish_reason="length"), "no text"),
        (completion("Some", finish_reason="content_filter"), "withheld"),
    ],
)
def test_what_is_no_answer_is_an_error(body: bytes, problem: str) -> None:
    """Whatever a server sends, nothing else is raised, and nothing of it is repeated."""
    with pytest.raises(SummarizerError, match=problem) as raised:
        read_answer(body)
    assert "secret" not in str(raised.value)


ODD: st.SearchStrategy[object] = st.sampled_from([None, True, 1, "", "a. b", [], {}, [1], "length"])
CHOICE = st.dictionaries(
    st.sampled_from(["message", "finish_reason"]),
    ODD | st.dictionaries(st.just("content"), ODD),
)
JSON = ODD | st.dictionaries(st.just("choices"), ODD | st.lists(CHOICE, max_size=2))


@given(st.binary(max_size=30) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_an_answer_or_an_error(body: bytes) -> None:
    """There is no third way."""
    with suppress(SummarizerError):
        assert read_answer(body).strip()
