"""The rules of Google's ``generateContent``, for the fields that a context fills.

After "Generating content", "Function calling", "Thought signatures" and the references of
``Content``, ``Part`` and ``FunctionDeclaration`` in the Gemini API documentation.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tests.validity.checks import (
    bad_schema,
    changed_parts,
    is_blank,
    is_name,
    listed,
    mapping,
    repeated,
    unknown_keys,
)

_FIELDS: Final = ("systemInstruction", "contents", "tools")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")
#: 128 by the newest reference; 64 by all before it.
_LONGEST_NAME: Final = 64

#: The fields of which a part holds one, in snake case.
_HELD: Final = (
    "text",
    "inline_data",
    "file_data",
    "function_call",
    "function_response",
    "executable_code",
    "code_execution_result",
    "tool_call",
    "tool_response",
)
_CAPITAL: Final = re.compile(r"(?=[A-Z])")


def gemini(body: Mapping[str, object], parts: Sequence[Sequence[object]] = ()) -> list[str]:
    """Return what is wrong with the fields of a ``generateContent`` call, each with its place.

    ``parts`` are the provider parts of each message that has some, which must be there as they
    came.
    """
    contents = [mapping(content) for content in listed(body.get("contents"))]
    inside = [listed(content.get("parts")) for content in contents]
    return [
        *unknown_keys(body, _FIELDS),
        *_system(body),
        *_turns(contents),
        *(
            problem
            for place, content in enumerate(contents)
            for problem in _parts(content, f"contents[{place}]")
        ),
        *repeated(_call_ids(inside), "id"),
        *_answers(inside),
        *_tools(body),
        *changed_parts(parts, inside),
    ]


def _system(body: Mapping[str, object]) -> Iterator[str]:
    if "systemInstruction" not in body:
        return
    parts = listed(mapping(body["systemInstruction"]).get("parts"))
    if not parts or any(is_blank(mapping(part).get("text")) for part in parts):
        yield "systemInstruction: is no text that says something"


def _turns(contents: Sequence[Mapping[str, object]]) -> Iterator[str]:
    roles = [content.get("role") for content in contents]
    if not roles:
        yield "contents: there are none"
        return
    if roles[0] != "user":
        yield "contents[0]: the first content is not a user's"
    if roles[-1] != "user":
        yield f"contents[{len(roles) - 1}]: the last content is not a user's"
    for place, role in enumerate(roles):
        if role not in ("user", "model"):
            yield f"contents[{place}]: the role {role!r} is not known"
        if place and role == roles[place - 1]:
            pair = (contents[place - 1], contents[place])
            if role == "model" or len({_has_responses(each) for each in pair}) == 1:
                yield f"contents[{place}]: follows a content of the same role"


def _has_responses(content: Mapping[str, object]) -> bool:
    return any("function_response" in _read(part) for part in listed(content.get("parts")))


def _parts(content: Mapping[str, object], at: str) -> Iterator[str]:
    parts = [_read(part) for part in listed(content.get("parts"))]
    if not parts:
        yield f"{at}: has no parts"
    for place, part in enumerate(parts):
        here = f"{at}.parts[{place}]"
        held = [name for name in _HELD if name in part]
        if len(held) != 1:
            yield f"{here}: holds {len(held)} things, not one"
        if "text" in part and not part["text"] and not part.get("thought_signature"):
            yield f"{here}: the text is empty"
        if "function_call" in part:
            yield from _call(mapping(part["function_call"]), content.get("role"), here)
        if "function_response" in part:
            yield from _response(mapping(part["function_response"]), content.get("role"), here)
    if len({"function_response" in part for part in parts}) > 1:
        yield f"{at}: has responses beside something else"


def _call(call: Mapping[str, object], role: object, at: str) -> Iterator[str]:
    if role != "model":
        yield f"{at}: only the model may call a function"
    if not is_name(call.get("name"), _NAME, _LONGEST_NAME):
        yield f"{at}: the name {call.get('name')!r} is not of the allowed form"
    if call.get("args") is not None and not isinstance(call["args"], Mapping):
        yield f"{at}: the args are no object"


def _response(response: Mapping[str, object], role: object, at: str) -> Iterator[str]:
    if role != "user":
        yield f"{at}: only the user may answer a call"
    if not isinstance(response.get("response"), Mapping):
        yield f"{at}: the response is no object"


def _call_ids(contents: Sequence[Sequence[object]]) -> Iterator[tuple[str, object]]:
    for place, parts in enumerate(contents):
        for number, part in enumerate(parts):
            id_ = mapping(_read(part).get("function_call")).get("id")
            if id_ is not None:
                yield f"contents[{place}].parts[{number}]", id_


def _answers(contents: Sequence[Sequence[object]]) -> Iterator[str]:
    """Report calls that the next content doesn't answer once each, and responses without a call."""
    waiting: list[tuple[object, object]] = []
    for place, parts in enumerate([*contents, []]):
        read = [_read(part) for part in parts]
        for number, part in enumerate(read):
            if "function_response" not in part:
                continue
            named = _named(part["function_response"])
            if named in waiting:
                waiting.remove(named)
            else:
                yield f"contents[{place}].parts[{number}]: answers no call of the content before it"
        for id_, name in waiting:
            yield f"contents[{place - 1}]: the call {id_!r} of {name!r} is not answered next"
        waiting = [_named(part["function_call"]) for part in read if "function_call" in part]


def _named(value: object) -> tuple[object, object]:
    return mapping(value).get("id"), mapping(value).get("name")


def _tools(body: Mapping[str, object]) -> Iterator[str]:
    declared = [
        (f"tools[{place}].functionDeclarations[{number}]", mapping(function))
        for place, tool in enumerate(listed(body.get("tools")))
        for number, function in enumerate(listed(mapping(tool).get("functionDeclarations")))
    ]
    if "tools" in body and not declared:
        yield "tools: there are none"
    for at, function in declared:
        if not is_name(function.get("name"), _NAME, _LONGEST_NAME):
            yield f"{at}: the name {function.get('name')!r} is not of the allowed form"
        if "parameters" in function and "parametersJsonSchema" in function:
            yield f"{at}: has parameters in two forms"
        if "parametersJsonSchema" in function:
            yield from bad_schema(function["parametersJsonSchema"], f"{at}.parametersJsonSchema")
    yield from repeated(((at, function.get("name")) for at, function in declared), "name")


def _read(part: object) -> dict[str, object]:
    """Return a part with its keys in snake case; the API reads both casings."""
    keys = {key: _CAPITAL.sub("_", key).lower() for key in mapping(part)}
    return {keys[key]: value for key, value in mapping(part).items() if value is not None}
