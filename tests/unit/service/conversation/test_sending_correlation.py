"""Tests for `service.conversation.sending`."""

import json
from typing import Any

from service.conversation.message_log import MAX_LINE, correlate
from tests.unit.service.conversation.talk import Said, calls, uses


def calling(**arguments: Any) -> list[Said]:
    """Return a conversation with a call of these arguments."""
    function = {"name": "search", "arguments": json.dumps(arguments)}
    return [{"role": "assistant", "tool_calls": [{"id": "c1", "function": function}]}]


def test_a_result_tells_its_call() -> None:
    """Calls are numbered within their message."""
    assert correlate("found", "2", [calls("1", "2")]) == "[#2: search(q=1)]\nfound"
    assert correlate("found", "1", [uses("1")]) == "[#1: search(q=1)]\nfound"


def test_the_newest_of_several_calls_is_meant() -> None:
    """Where an id was used before."""
    assert correlate("found", "1", [calls("0", "1"), calls("1")]).startswith("[#1: ")


def test_a_result_of_no_call_is_left_alone() -> None:
    """There is nothing to tell."""
    assert correlate("found", "9", [calls("1")]) == "found"


def test_arguments_are_told_on_one_short_line() -> None:
    """Long ones are cut, and those that hold whole files are left out."""
    told = correlate("found", "c1", calling(q="a b", code="x", _parallel=True, t="y" * 60))

    assert told == f'[#1: search(q="a b", t="{"y" * 46}...)]\nfound'
    many = correlate("found", "c1", calling(**{f"k{n}": "z" * 40 for n in range(9)}))
    assert len(many.partition("\n")[0]) == MAX_LINE + 2


def test_arguments_that_cannot_be_read_are_none() -> None:
    """The name is told all the same."""
    row = {"role": "assistant", "tool_calls": [{"id": "c", "name": "f", "arguments": "{"}]}

    assert correlate("found", "c", [row]) == "[#1: f()]\nfound"
