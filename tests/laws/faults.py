"""Ways to spoil a valid request; each changes it in place and returns whether it could."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

Body = dict[str, Any]
Fault = Callable[[Any], bool]


def blocks(body: Body) -> list[tuple[list[Any], int]]:
    """Return every block of an Anthropic body, as its list and its place in it."""
    return _inside(message["content"] for message in body["messages"])


def parts(body: Body) -> list[tuple[list[Any], int]]:
    """Return every part of a Gemini body, as its list and its place in it."""
    return _inside(content["parts"] for content in body["contents"])


def items(body: Body) -> list[tuple[list[Any], int]]:
    """Return every item of a Responses body, as its list and its place in it."""
    return _inside([body["input"]])


def _inside(lists: Any) -> list[tuple[list[Any], int]]:
    return [(found, place) for found in lists for place in range(len(found))]


def _where(found: list[tuple[list[Any], int]], key: str, value: Any = None) -> Iterator[Any]:
    for block, place in found:
        held = block[place].get(key)
        if held is not None and value in (None, held):
            yield block, place


def _is(kind: str) -> Callable[[Body], list[tuple[list[Any], int]]]:
    return lambda body: list(_where(blocks(body), "type", kind))


def _item(kind: str) -> Callable[[Body], list[tuple[list[Any], int]]]:
    return lambda body: list(_where(items(body), "type", kind))


def _part(key: str) -> Callable[[Body], list[tuple[list[Any], int]]]:
    return lambda body: list(_where(parts(body), key))


def _messages(messages: Any) -> list[tuple[list[Any], int]]:
    return _inside([messages])


def _role(role: str) -> Callable[[Any], list[tuple[list[Any], int]]]:
    return lambda messages: list(_where(_messages(messages), "role", role))


def dropped(find: Callable[[Any], list[tuple[list[Any], int]]]) -> Fault:
    """Leave out the last one found."""

    def fault(body: Any) -> bool:
        for found, place in reversed(find(body)):
            del found[place]
            return True
        return False

    return fault


def doubled(find: Callable[[Any], list[tuple[list[Any], int]]]) -> Fault:
    """Put the first one found there twice."""

    def fault(body: Any) -> bool:
        for found, place in find(body):
            found.insert(place, copy.deepcopy(found[place]))
            return True
        return False

    return fault


def changed(find: Callable[[Any], list[tuple[list[Any], int]]], *path: str, to: Any) -> Fault:
    """Give the first one found another value."""

    def fault(body: Any) -> bool:
        for found, place in find(body):
            inner = found[place]
            for step in path[:-1]:
                inner = inner[step]
            inner[path[-1]] = to
            return True
        return False

    return fault


def swapped(key: str) -> Fault:
    """Exchange the first two messages."""

    def fault(body: Any) -> bool:
        messages = body[key] if key else body
        if len(messages) < 2:
            return False
        messages[0], messages[1] = messages[1], messages[0]
        return True

    return fault


def appended(key: str, message: Any) -> Fault:
    """Put a message after the last."""

    def fault(body: Any) -> bool:
        (body[key] if key else body).append(message)
        return True

    return fault


def without(key: str) -> Fault:
    """Empty a field."""

    def fault(body: Any) -> bool:
        had = bool(body.get(key))
        body[key] = []
        return had

    return fault


def five_marks(body: Body) -> bool:
    """Mark more blocks than Anthropic allows."""
    marked = 0
    for found, place in _is("text")(body) + _is("tool_use")(body) + _is("tool_result")(body):
        found[place]["cache_control"] = {"type": "ephemeral"}
        marked += 1
    return marked > 4


def same_id(body: Body) -> bool:
    """Give two calls of an Anthropic body, and their results, one id."""
    calls, results = _is("tool_use")(body), _is("tool_result")(body)
    for found, place in calls:
        found[place]["id"] = "same"
    for found, place in results:
        found[place]["tool_use_id"] = "same"
    return len(calls) > 1


def same_call_id(body: Body) -> bool:
    """The same in a Responses body."""
    for found, place in _item("function_call")(body) + _item("function_call_output")(body):
        found[place]["call_id"] = "same"
    return len(_item("function_call")(body)) > 1


def text_in_front_of_results(body: Body) -> bool:
    """Put a text before the results that answer a call."""
    for found, place in _is("tool_result")(body):
        found.insert(place, {"type": "text", "text": "first this"})
        return True
    return False


def text_beside_responses(body: Body) -> bool:
    """Put a text into a content of responses."""
    for found, _ in _part("functionResponse")(body):
        found.append({"text": "and this"})
        return True
    return False


def changed_thought(body: Body) -> bool:
    """Turn the keys of a thought round, which changes its bytes and not its meaning."""
    for found, place in _is("thinking")(body):
        found[place] = dict(reversed(found[place].items()))
        return True
    return False


def text_in_front_of_thought(body: Body) -> bool:
    """Put a text before a thought."""
    for found, place in _is("thinking")(body):
        found.insert(place, {"type": "text", "text": "first this"})
        return True
    return False


def user_between_call_and_output(body: Body) -> bool:
    """Put a user's message between a call and its output."""
    for found, place in _item("function_call")(body):
        found.insert(place + 1, {"type": "message", "role": "user", "content": "and this"})
        return True
    return False


def user_behind_reasoning(body: Body) -> bool:
    """Put a user's message between a reasoning item and what it led to."""
    for found, place in _item("reasoning")(body):
        found.insert(place + 1, {"type": "message", "role": "user", "content": "and this"})
        return True
    return False


def _tool_names(body: Body) -> list[tuple[list[Any], int]]:
    tools = body.get("tools", [])
    return (
        _inside([tool.get("functionDeclarations", []) for tool in tools])
        if any("functionDeclarations" in tool for tool in tools)
        else _inside([tools])
    )


_OWN = {"type": "tool_result", "tool_use_id": "nobody", "content": "stray"}
_RESPONSE = {"functionResponse": {"name": "nobody", "response": {"output": "stray"}}}
_OUTPUT = {"type": "function_call_output", "call_id": "nobody", "output": "stray"}

FAULTS: dict[str, list[Fault]] = {
    "anthropic": [
        dropped(_is("tool_result")),
        dropped(_is("tool_use")),
        doubled(_is("tool_result")),
        doubled(_is("tool_use")),
        changed(_is("text"), "text", to=""),
        changed(_is("text"), "text", to=" \n"),
        changed(_is("tool_use"), "id", to="a.b"),
        changed(_is("tool_use"), "name", to="a.b"),
        changed(_is("tool_use"), "input", to="{}"),
        changed(_is("tool_result"), "tool_use_id", to="nobody"),
        changed(_is("tool_result"), "content", to=""),
        changed(_tool_names, "name", to="a.b"),
        changed(_tool_names, "input_schema", to={"type": "string"}),
        doubled(_tool_names),
        swapped("messages"),
        appended("messages", {"role": "assistant", "content": [{"type": "text", "text": "x"}]}),
        appended("messages", {"role": "user", "content": [{"type": "text", "text": "x"}]}),
        appended("messages", {"role": "user", "content": [_OWN]}),
        without("messages"),
        without("system"),
        without("tools"),
        five_marks,
        same_id,
        text_in_front_of_results,
        changed_thought,
        text_in_front_of_thought,
    ],
    "gemini": [
        dropped(_part("functionResponse")),
        dropped(_part("functionCall")),
        doubled(_part("functionResponse")),
        doubled(_part("functionCall")),
        changed(_part("text"), "text", to=""),
        changed(_part("functionCall"), "functionCall", "name", to="a b"),
        changed(_part("functionCall"), "functionCall", "args", to="{}"),
        changed(_part("functionResponse"), "functionResponse", "name", to="nobody"),
        changed(_part("functionResponse"), "functionResponse", "response", to="text"),
        changed(_tool_names, "name", to="9lives"),
        doubled(_tool_names),
        swapped("contents"),
        appended("contents", {"role": "model", "parts": [{"text": "x"}]}),
        appended("contents", {"role": "user", "parts": [_RESPONSE]}),
        without("contents"),
        without("systemInstruction"),
        without("tools"),
        text_beside_responses,
    ],
    "openai_responses": [
        dropped(_item("function_call_output")),
        dropped(_item("function_call")),
        doubled(_item("function_call_output")),
        doubled(_item("function_call")),
        changed(_item("message"), "content", to=""),
        changed(_item("message"), "role", to="tool"),
        changed(_item("function_call"), "call_id", to="x" * 65),
        changed(_item("function_call"), "name", to="a.b"),
        changed(_item("function_call"), "arguments", to="[1]"),
        changed(_item("function_call_output"), "call_id", to="nobody"),
        changed(_item("function_call_output"), "output", to=None),
        changed(_tool_names, "name", to="a.b"),
        changed(_tool_names, "strict", to=None),
        doubled(_tool_names),
        appended("input", _OUTPUT),
        without("input"),
        without("instructions"),
        without("tools"),
        same_call_id,
        user_between_call_and_output,
        user_behind_reasoning,
    ],
}

_CALLS = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def _callers(messages: Any) -> list[tuple[list[Any], int]]:
    return list(_where(_messages(messages), "tool_calls"))


def _calls(messages: Any) -> list[tuple[list[Any], int]]:
    return _inside([found[place]["tool_calls"] for found, place in _callers(messages)])


CANONICAL_FAULTS: list[Fault] = [
    dropped(_role("tool")),
    dropped(_callers),
    doubled(_role("tool")),
    doubled(_role("system")),
    doubled(_callers),
    doubled(_calls),
    changed(_role("user"), "content", to=""),
    changed(_role("user"), "content", to=None),
    changed(_role("user"), "role", to="human"),
    changed(_role("user"), "tool_call_id", to="c"),
    changed(_role("user"), "tool_calls", to=[_CALLS]),
    changed(_callers, "tool_calls", to=[]),
    changed(_calls, "id", to=""),
    changed(_calls, "type", to="tool"),
    changed(_calls, "function", "name", to=""),
    changed(_calls, "function", "arguments", to='{"a": NaN}'),
    changed(_role("tool"), "tool_call_id", to="nobody, for sure"),
    swapped(""),
    appended("", {"role": "assistant", "content": "", "tool_calls": [_CALLS]}),
    appended("", {"role": "tool", "tool_call_id": "nobody, for sure", "content": "stray"}),
    lambda messages: bool(messages.clear() or True),
]
