"""The rules of the canonical form: OpenAI's chat messages, as every response has them.

After "Create chat completion" and "Function calling" of the OpenAI documentation, and stricter:
blank texts are refused, and results directly follow their calls. Several users' messages may
follow one another. Ids may be any text here; the other forms fit them to their APIs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tests.validity.checks import (
    WORD,
    bad_schema,
    is_blank,
    is_name,
    is_object_json,
    listed,
    mapping,
    repeated,
)

_LONGEST_NAME: Final = 64
_ROLES: Final = ("system", "user", "assistant", "tool")


def canonical(messages: Sequence[object], tools: Sequence[object] = ()) -> list[str]:
    """Return what is wrong with canonical messages and tool definitions, each with its place."""
    return [
        *_ends(messages),
        *(
            problem
            for place, message in enumerate(messages)
            for problem in _message(mapping(message), f"messages[{place}]", place)
        ),
        *repeated(_call_ids(messages), "call id"),
        *_answers(messages),
        *_tools(tools),
    ]


def _ends(messages: Sequence[object]) -> Iterator[str]:
    if not messages:
        yield "messages: there are none"
        return
    if mapping(messages[0]).get("role") not in ("system", "user"):
        yield "messages[0]: is neither the system message nor a user's"
    last = mapping(messages[-1])
    ends = last.get("role") in ("user", "tool")
    if not ends and (last.get("role") != "assistant" or last.get("tool_calls")):
        at = f"messages[{len(messages) - 1}]"
        yield f"{at}: the last message is no user's, no tool's and no assistant's text"


def _message(message: Mapping[str, object], at: str, place: int) -> Iterator[str]:
    role, content = message.get("role"), message.get("content")
    if role not in _ROLES:
        yield f"{at}: the role {role!r} is not known"
    if role == "system" and place > 0:
        yield f"{at}: a system message that is not the first"
    if not isinstance(content, str):
        yield f"{at}: the content is no text"
    elif is_blank(content) and role != "tool" and not message.get("tool_calls"):
        yield f"{at}: the content is empty"
    if role != "assistant" and "tool_calls" in message:
        yield f"{at}: only an assistant may call tools"
    if role != "tool" and "tool_call_id" in message:
        yield f"{at}: only a tool may answer a call"
    yield from _calls(message, at)


def _calls(message: Mapping[str, object], at: str) -> Iterator[str]:
    if "tool_calls" in message and not listed(message["tool_calls"]):
        yield f"{at}.tool_calls: has no calls"
    for place, call in enumerate(listed(message.get("tool_calls"))):
        here = f"{at}.tool_calls[{place}]"
        function = mapping(mapping(call).get("function"))
        if mapping(call).get("type") != "function":
            yield f"{here}: the type is not 'function'"
        if is_blank(mapping(call).get("id")):
            yield f"{here}: has no id"
        if not is_name(function.get("name"), WORD, _LONGEST_NAME):
            yield f"{here}: the name {function.get('name')!r} is not of the allowed form"
        if not is_object_json(function.get("arguments")):
            yield f"{here}: the arguments are no JSON object"


def _call_ids(messages: Sequence[object]) -> Iterator[tuple[str, object]]:
    for place, message in enumerate(messages):
        for number, id_ in enumerate(_ids(message)):
            yield f"messages[{place}].tool_calls[{number}]", id_


def _ids(message: object) -> list[str]:
    calls = listed(mapping(message).get("tool_calls"))
    return [str(mapping(call).get("id")) for call in calls]


def _answers(messages: Sequence[object]) -> Iterator[str]:
    """Report calls without exactly one answer right after them, and answers without a call."""
    waiting: list[str] = []
    caller = 0
    for place, message in enumerate([*messages, {}]):
        if mapping(message).get("role") == "tool":
            id_ = mapping(message).get("tool_call_id")
            if id_ in waiting:
                waiting.remove(str(id_))
            else:
                yield f"messages[{place}]: answers {id_!r}, which no call before it waits for"
            continue
        for id_ in waiting:
            yield f"messages[{caller}]: the call {id_!r} is not answered directly after it"
        waiting, caller = _ids(message), place


def _tools(tools: Sequence[object]) -> Iterator[str]:
    functions = [mapping(mapping(tool).get("function")) for tool in tools]
    for place, (tool, function) in enumerate(zip(tools, functions, strict=True)):
        at = f"tools[{place}]"
        if mapping(tool).get("type") != "function":
            yield f"{at}: the type is not 'function'"
        if not is_name(function.get("name"), WORD, _LONGEST_NAME):
            yield f"{at}: the name {function.get('name')!r} is not of the allowed form"
        if "parameters" in function:
            yield from bad_schema(function["parameters"], f"{at}.function.parameters")
    named = ((f"tools[{place}]", each.get("name")) for place, each in enumerate(functions))
    yield from repeated(named, "name")
