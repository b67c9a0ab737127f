"""Reading chat completions that the SDK has parsed but not validated."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion

from service.adapters.summarizers.openai import answer_attributes, read_answer
from service.errors import SummarizerError


def parsed(**fields: Any) -> object:
    """Return a chat completion as the SDK makes it of JSON."""
    return ChatCompletion.construct(**fields)


def completion(content: Any, **choice: Any) -> object:
    """Return a chat completion with one choice."""
    return parsed(choices=[{"message": {"content": content}, **choice}])


@pytest.mark.parametrize(
    ("answer", "text"),
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
def test_the_text_of_an_answer(answer: object, text: str) -> None:
    """Whole sentences, as far as the answer was cut off; what is no text is repaired."""
    assert read_answer(answer) == text


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("<html>", "not a chat completion"),
        (None, "not a chat completion"),
        ([], "not a chat completion"),
        (parsed(choices=[]), "not a chat completion"),
        (parsed(choices={"0": 1}), "not a chat completion"),
        (parsed(choices=[{"message": None}]), "not a chat completion"),
        (parsed(error={"message": "sk-secret"}), "not a chat completion"),
        (completion(None), "no text"),
        (completion(["parts"]), "no text"),
        (completion(" \n"), "no text"),
        (completion("<think>Let me see. What", finish_reason="length"), "no text"),
        (completion("Some", finish_reason="content_filter"), "withheld"),
    ],
)
def test_what_is_no_answer_is_an_error(answer: object, problem: str) -> None:
    """Whatever a server sends, nothing else is raised, and nothing of it is repeated."""
    with pytest.raises(SummarizerError, match=problem) as raised:
        read_answer(answer)
    assert "secret" not in str(raised.value)


ODD: st.SearchStrategy[object] = st.sampled_from([None, True, 1, "", "a. b", [], {}, [1], "length"])
CHOICE = st.dictionaries(
    st.sampled_from(["message", "finish_reason"]), ODD | st.dictionaries(st.just("content"), ODD)
)
FIELDS = st.dictionaries(
    st.sampled_from(["choices", "model", "usage"]), ODD | st.lists(CHOICE, max_size=2)
)


@given(ODD | FIELDS.map(lambda fields: parsed(**fields)))
def test_any_answer_has_a_text_or_is_an_error(answer: object) -> None:
    """No other exception is raised, whatever the fields are."""
    answer_attributes(answer)
    with suppress(SummarizerError):
        assert read_answer(answer).strip()
