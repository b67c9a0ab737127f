"""Laws of the provider forms: whatever is canonical becomes a request that its API takes."""

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from formatters.names import fit_names, fits
from formatters.providers.formats import FORMATS, build_provider_request
from tests.laws.chats import PROVIDERS, Chat, chats, ids
from tests.laws.faults import CANONICAL_FAULTS, FAULTS
from tests.validity.canonical import canonical
from tests.validity.forms import VALIDATORS

each_form = pytest.mark.parametrize("form", PROVIDERS)
Body = dict[str, Any]


def converted(chat: Chat, form: str) -> Body:
    """Return a conversation in a form."""
    body = build_provider_request(form, chat.messages, chat.tools, chat.stable)
    assert body is not None
    return body


def written(body: object) -> str:
    """Return a value as JSON."""
    return json.dumps(body, ensure_ascii=False, allow_nan=False)


def strings(value: object) -> Iterator[str]:
    """Yield every text inside a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def sequences(body: Body) -> list[tuple[str, list[Any]]]:
    """Return the roles and lists of blocks, parts or items that a body is made of."""
    if "input" in body:
        return [("", body["input"])]
    if "contents" in body:
        return [(content["role"], content["parts"]) for content in body["contents"]]
    return [(message["role"], message["content"]) for message in body["messages"]]


def blocks_of(body: Body) -> list[str]:
    """Return every block with its role, as it is sent."""
    return [written([role, block]) for role, inside in sequences(body) for block in inside]


def test_every_form_has_a_validator() -> None:
    """A form that nobody checks can't be added."""
    assert {form for form, convert in FORMATS.items() if convert} == set(VALIDATORS)


@each_form
@given(chat=chats())
def test_what_is_canonical_becomes_valid(form: str, chat: Chat) -> None:
    """No conversation, tool, id or part makes a request that the API would refuse."""
    assert canonical(chat.messages, chat.tools) == []

    assert VALIDATORS[form](converted(chat, form), chat.parts(form)) == []


@each_form
@given(chat=chats())
def test_a_form_is_deterministic_and_leaves_its_input_alone(form: str, chat: Chat) -> None:
    """The same messages give the same bytes, which can be sent, and are not changed."""
    before = copy.deepcopy(chat)
    body = written(converted(chat, form))

    assert written(converted(chat, form)) == body
    assert chat == before
    body.encode()


@each_form
@given(chat=chats())
def test_no_text_is_lost(form: str, chat: Chat) -> None:
    """What every message says is in the request, and so are its parts, as the same objects."""
    body = converted(chat, form)
    found = set(strings(body))

    texts = {message["content"] for message in chat.messages if message["content"].strip()}
    assert texts <= found
    kept = {id(block) for _, inside in sequences(body) for block in inside}
    assert {id(item) for parts in chat.parts(form) for item in parts} <= kept


@each_form
@given(chat=chats(), data=st.data())
def test_a_prefix_stays_the_same(form: str, chat: Chat, data: st.DataObject) -> None:
    """What was sent is sent in the same bytes when more follows it, so that caches hit."""
    ends = [place + 1 for place, message in enumerate(chat.messages) if message["role"] == "user"]
    assume(ends)
    end = data.draw(st.sampled_from(ends))
    before = Chat(chat.messages[:end], chat.tools, 1, {})

    sent = blocks_of(converted(before, form))
    assert blocks_of(converted(replace(chat, stable=1), form))[: len(sent)] == sent


@given(
    names=st.lists(ids, max_size=12),
    others=st.lists(ids, max_size=12),
    taken=st.sets(ids, max_size=3),
)
def test_no_two_names_become_one(names: list[str], others: list[str], taken: set[str]) -> None:
    """Each name fits, is distinguished from all others, and doesn't take one that is taken."""
    form = re.compile(r"[A-Za-z0-9_-]{1,64}")
    found = fit_names([*names, *others], form, taken)

    assert set(found) == {*names, *others}
    assert len(set(found.values())) == len(found)
    assert all(fits(name, form) for name in found.values())
    assert not taken & set(found.values())


@each_form
@given(chat=chats(), data=st.data())
def test_every_fault_is_found(form: str, chat: Chat, data: st.DataObject) -> None:
    """A validator that found nothing in any request would prove nothing."""
    body = copy.deepcopy(converted(chat, form))
    fault = data.draw(st.sampled_from(FAULTS[form]))
    spoiled = fault(body)
    assume(spoiled)

    assert VALIDATORS[form](body, chat.parts(form)) != []


@given(chat=chats(), data=st.data())
def test_every_fault_of_the_canonical_form_is_found(chat: Chat, data: st.DataObject) -> None:
    """The same for the canonical form, from which the others are made."""
    messages = copy.deepcopy(chat.messages)
    fault = data.draw(st.sampled_from(CANONICAL_FAULTS))
    assume(fault(messages))

    assert canonical(messages, chat.tools) != []
