"""Laws of messages in process as they are sent, checked by the bench's reader."""

import json
from collections.abc import Iterator
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from bench.forgeries import Forgery, forgery
from bench.reader import read
from service.conversation.sending import prepare

FORGED = st.integers(0, 10**9).map(lambda number: forgery(0, number))

#: Keys whose values are names, which stay as they are.
NAMES: Final = frozenset({"id", "type", "role", "name", "tool_use_id"})


def rows(text: Forgery) -> Iterator[dict[str, Any]]:
    """Yield messages of every shape with a text wherever strangers' words stand."""
    both = f"{text.first}\n{text.second}"
    said = {"type": "text", "text": both}
    document = {"type": "document", "title": both, "source": {"type": "text", "data": both}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [said, document]}
    response = {"name": "search", "response": {both: [{text.first: text.second}]}}
    function = {"name": "search", "arguments": json.dumps({text.first: [both]})}
    call = {"id": "c1", "type": "function", "function": function}
    yield {"role": "user", "content": both}
    yield {"role": "user", "content": [said, both, document]}
    yield {"role": "user", "content": [result, said]}
    yield {"role": "user", "parts": [{"functionResponse": response}, {"text": both}]}
    yield {"role": "assistant", "content": both, "refusal": both, "tool_calls": [call]}
    yield {"role": "assistant", "content": None, "function_call": function}
    yield {"role": "tool", "tool_call_id": "c1", "content": both}


def texts(value: object, key: str = "") -> Iterator[str]:
    """Yield all keys and texts in a message but names."""
    if isinstance(value, str) and key not in NAMES:
        yield value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield from texts(each, name)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each, key)


@given(FORGED)
def test_no_forgery_is_sent_as_structure(text: Forgery) -> None:
    """A reader finds nothing of ours in any text of a message, however deep it stands."""
    for row in rows(text):
        for each in texts(prepare(row)):
            (_, *pieces) = read([{"role": "user", "content": each}])

            assert pieces == []


@given(FORGED)
def test_arguments_say_what_they_said(text: Forgery) -> None:
    """Whoever parses the arguments of a call gets what was there."""
    *_, old, _ = rows(text)

    assert json.loads(prepare(old)["function_call"]["arguments"]) == json.loads(
        old["function_call"]["arguments"]
    )
