"""The rules of OpenAI's Responses API, for the fields that a context fills.

After "Create a model response", "Function calling" and "Reasoning models" of the OpenAI
documentation; the length of a ``call_id`` is known from the API's own error ("Expected a string
with maximum length 64").
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tests.validity.checks import (
    WORD,
    bad_edits,
    bad_schema,
    changed_parts,
    is_blank,
    is_name,
    is_object_json,
    listed,
    mapping,
    repeated,
    unknown_keys,
)

_FIELDS: Final = ("instructions", "input", "tools", "context_management")
_LONGEST: Final = 64
_ROLES: Final = ("user", "assistant", "developer", "system")


def openai_responses(
    body: Mapping[str, object], parts: Sequence[Sequence[object]] = ()
) -> list[str]:
    """Return what is wrong with the fields of a Responses call, each with its place.

    ``parts`` are the provider items of each message that has some, which must be there as they
    came.
    """
    items = [mapping(item) for item in listed(body.get("input"))]
    places = [(f"input[{place}]", item) for place, item in enumerate(items)]
    calls = [(at, item) for at, item in places if item.get("type") == "function_call"]
    empty = is_blank(body.get("instructions")) and "instructions" in body
    return [
        *unknown_keys(body, _FIELDS),
        *(["instructions: are empty"] if empty else []),
        *([] if items else ["input: there is none"]),
        *(problem for at, item in places for problem in _item(item, at)),
        *repeated(((at, item.get("call_id")) for at, item in calls), "call id"),
        *repeated(((at, item["id"]) for at, item in places if item.get("id")), "id"),
        *_answers(places),
        *_unfollowed(places),
        *_tools(body),
        *bad_edits(body.get("context_management"), body),
        *changed_parts(parts, [items]),
    ]


def _item(item: Mapping[str, object], at: str) -> Iterator[str]:
    kind = item.get("type")
    if kind == "message":
        if item.get("role") not in _ROLES:
            yield f"{at}: the role {item.get('role')!r} is not known"
        if is_blank(item.get("content")) and not listed(item.get("content")):
            yield f"{at}: the content is empty"
    elif kind == "function_call":
        yield from _call(item, at)
    elif kind == "function_call_output":
        if not isinstance(item.get("output"), str | list):
            yield f"{at}: the output is no text and no list"
    elif not isinstance(kind, str):
        yield f"{at}: has no type"


def _call(item: Mapping[str, object], at: str) -> Iterator[str]:
    for key in ("call_id", "name"):
        if not is_name(item.get(key), WORD, _LONGEST):
            yield f"{at}: the {key} {item.get(key)!r} is not of the allowed form"
    if not is_object_json(item.get("arguments")):
        yield f"{at}: the arguments are no JSON object"


def _answers(places: Sequence[tuple[str, Mapping[str, object]]]) -> Iterator[str]:
    """Report calls that have no output before the next is said, and outputs without a call."""
    waiting: dict[object, str] = {}
    answering = False
    for at, item in [*places, ("", {"role": "user"})]:
        if item.get("type") == "function_call_output":
            answering = True
            if waiting.pop(item.get("call_id"), None) is None:
                yield f"{at}: answers {item.get('call_id')!r}, which no call before it waits for"
            continue
        if answering or item.get("role") == "user":
            for id_, caller in waiting.items():
                yield f"{caller}: the call {id_!r} is not answered directly after it"
            waiting, answering = {}, False
        if item.get("type") == "function_call":
            waiting[item.get("call_id")] = at


def _unfollowed(places: Sequence[tuple[str, Mapping[str, object]]]) -> Iterator[str]:
    following = [*(item for _, item in places[1:]), {"role": "user"}]
    for (at, item), after in zip(places, following, strict=False):
        ends = after.get("role") == "user" or after.get("type") == "function_call_output"
        if item.get("type") == "reasoning" and ends:
            yield f"{at}: a reasoning item without the item that it led to"


def _tools(body: Mapping[str, object]) -> Iterator[str]:
    tools = [mapping(tool) for tool in listed(body.get("tools"))]
    if "tools" in body and not tools:
        yield "tools: there are none"
    for place, tool in enumerate(tools):
        at = f"tools[{place}]"
        if tool.get("type") != "function":
            yield f"{at}: the type is not 'function'"
        if not is_name(tool.get("name"), WORD, _LONGEST):
            yield f"{at}: the name {tool.get('name')!r} is not of the allowed form"
        if not isinstance(tool.get("strict"), bool):
            yield f"{at}: does not say whether it is strict"
        yield from bad_schema(tool.get("parameters"), f"{at}.parameters")
    named = ((f"tools[{place}]", tool.get("name")) for place, tool in enumerate(tools))
    yield from repeated(named, "name")
