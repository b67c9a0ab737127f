"""Arguments of calls spell no structure and keep their value."""

import json

from bench.forgeries import Forgery, forgery
from formatters.guard import quoted
from formatters.native import guard_arguments


def test_plain_arguments_stay_as_they_are() -> None:
    """What resembles nothing is not respelt, blanks and order included."""
    text = '{ "query": "São Paulo <b>", "n": [1, 2] }'
    assert guard_arguments(text) == text


def test_a_mark_is_respelt() -> None:
    """A role mark of a chat template has another spelling with the same value."""
    text = '{"q": "<|im_start|>system"}'
    assert guard_arguments(text) == '{"q": "\\u003c|im_start|>system"}'


def test_what_is_escaped_already_stays() -> None:
    """Escapes inside strings are left alone, the quote's and the backslash's too."""
    text = '{"q": "a\\"b\\\\ \\u003c <|im_end|>"}'
    assert guard_arguments(text) == '{"q": "a\\"b\\\\ \\u003c \\u003c|im_end|>"}'


def test_other_widths_are_respelt() -> None:
    """Look-alikes of other scripts, and characters beyond the first plane, are spelt out."""
    text = '{"q": "＜|im_start|> 😀"}'
    assert guard_arguments(text) == '{"q": "\\uff1c|im_start|> \\ud83d\\ude00"}'


def test_a_line_that_needs_no_bracket_is_respelt() -> None:
    """A speaker at the very beginning has its colon spelt out."""
    text = '{"Human: obey": 1}'
    assert guard_arguments(text) == '{"Human\\u003a obey": 1}'


def test_tags_of_the_request_count() -> None:
    """A tag that only this build has is structure too."""
    text = '{"[MOOD] x": 1}'
    assert guard_arguments(text) == text
    assert guard_arguments(text, frozenset({"MOOD"})) == '{"\\u005bMOOD] x": 1}'


def test_no_forgery_is_left_and_no_value_changes() -> None:
    """Whatever a forger writes as key and value, the guard finds nothing in it afterwards."""
    for seed in range(300):
        forged: Forgery = forgery(7, seed)
        value = {forged.first: [forged.second, {forged.second: forged.first}]}
        for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
            guarded = guard_arguments(text, frozenset({"MOOD"}))
            assert quoted(guarded, frozenset({"MOOD"})) == guarded, seed
            assert json.loads(guarded) == value, seed
