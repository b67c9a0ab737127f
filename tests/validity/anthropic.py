"""The rules of Anthropic's Messages API, for the fields that a context fills.

After "Using the Messages API", "Define tools", "Handle tool calls", "Prompt caching", "Extended
thinking" and "Errors" of the Claude Platform documentation. Messages are lists of blocks here, and
alternate; that the API itself joins neighbours of one role is not relied on.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tests.validity.checks import (
    WORD,
    bad_edits,
    bad_schema,
    changed_parts,
    is_blank,
    is_name,
    listed,
    mapping,
    repeated,
    unknown_keys,
)

_FIELDS: Final = ("system", "messages", "tools", "tool_choice", "context_management")
_LONGEST_NAME: Final = 128
_PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_MOST_MARKS: Final = 4
_THOUGHTS: Final = ("thinking", "redacted_thinking")
_NOT_AT_TOP: Final = ("anyOf", "oneOf", "allOf")

#: Blocks that only one role may have; others, the API's own tools among them, are not judged.
_SPEAKER: Final[Mapping[str, str]] = {
    "tool_result": "user",
    "image": "user",
    "document": "user",
    "tool_use": "assistant",
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "server_tool_use": "assistant",
}


def anthropic(body: Mapping[str, object], parts: Sequence[Sequence[object]] = ()) -> list[str]:
    """Return what is wrong with the fields of a Messages call, each with its place.

    ``parts`` are the provider parts of each message that has some, which must be there as they
    came; a thought that leads them must lead its message.
    """
    messages = [mapping(message) for message in listed(body.get("messages"))]
    contents = [listed(message.get("content")) for message in messages]
    return [
        *unknown_keys(body, _FIELDS),
        *_system(body),
        *_turns(messages),
        *(
            problem
            for place, message in enumerate(messages)
            for problem in _blocks(message, f"messages[{place}]")
        ),
        *repeated(_call_ids(contents), "id"),
        *_answers(contents),
        *_tools(body, contents),
        *_marks(body, contents),
        *bad_edits(mapping(body.get("context_management")).get("edits"), body),
        *changed_parts(parts, contents),
        *_thoughts_behind(parts, contents),
    ]


def _system(body: Mapping[str, object]) -> Iterator[str]:
    if "system" not in body:
        return
    if not listed(body["system"]):
        yield "system: has no blocks"
    for place, block in enumerate(listed(body["system"])):
        if mapping(block).get("type") != "text" or is_blank(mapping(block).get("text")):
            yield f"system[{place}]: is no text that says something"


def _turns(messages: Sequence[Mapping[str, object]]) -> Iterator[str]:
    roles = [message.get("role") for message in messages]
    if not roles:
        yield "messages: there are none"
        return
    if roles[0] != "user":
        yield "messages[0]: the first message is not a user's"
    if roles[-1] != "user":
        yield f"messages[{len(roles) - 1}]: the last message is not a user's"
    for place, role in enumerate(roles):
        if role not in ("user", "assistant"):
            yield f"messages[{place}]: the role {role!r} is not known"
        if place and role == roles[place - 1]:
            yield f"messages[{place}]: follows a message of the same role"


def _blocks(message: Mapping[str, object], at: str) -> Iterator[str]:
    blocks = listed(message.get("content"))
    if not blocks:
        yield f"{at}: has no content"
    for place, block in enumerate(map(mapping, blocks)):
        here = f"{at}.content[{place}]"
        kind = str(block.get("type"))
        if _SPEAKER.get(kind, message.get("role")) != message.get("role"):
            yield f"{here}: a block of type {kind!r} in a message of the role {message['role']!r}"
        if kind == "text" and is_blank(block.get("text")):
            yield f"{here}: the text is empty"
        elif kind == "tool_use":
            yield from _call(block, here)
        elif kind == "tool_result" and "content" in block:
            yield from _result(block["content"], here)
        elif kind == "None":
            yield f"{here}: has no type"


def _call(block: Mapping[str, object], at: str) -> Iterator[str]:
    if not is_name(block.get("id"), WORD, _LONGEST_NAME):
        yield f"{at}: the id {block.get('id')!r} is not of the allowed form"
    if not is_name(block.get("name"), WORD, _LONGEST_NAME):
        yield f"{at}: the name {block.get('name')!r} is not of the allowed form"
    if not isinstance(block.get("input"), Mapping):
        yield f"{at}: the input is no object"


def _result(content: object, at: str) -> Iterator[str]:
    if is_blank(content) and not listed(content):
        yield f"{at}: the result is empty"


def _call_ids(contents: Sequence[Sequence[object]]) -> Iterator[tuple[str, object]]:
    for place, content in enumerate(contents):
        for number, block in enumerate(content):
            if mapping(block).get("type") == "tool_use":
                yield f"messages[{place}].content[{number}]", mapping(block).get("id")


def _answers(contents: Sequence[Sequence[object]]) -> Iterator[str]:
    """Report calls without exactly one result in front of the next message, and stray results."""
    waiting: list[object] = []
    for place, content in enumerate([*contents, []]):
        blocks = [mapping(block) for block in content]
        results = 0
        for number, block in enumerate(blocks):
            if block.get("type") != "tool_result":
                continue
            at = f"messages[{place}].content[{number}]"
            if block.get("tool_use_id") not in waiting:
                yield f"{at}: answers no call of the message before it"
            else:
                waiting.remove(block["tool_use_id"])
            if number != results:
                yield f"{at}: a result behind another block"
            results += 1
        for id_ in waiting:
            yield f"messages[{place - 1}]: the call {id_!r} is not answered in the next message"
        waiting = [block.get("id") for block in blocks if block.get("type") == "tool_use"]


def _tools(body: Mapping[str, object], contents: Sequence[Sequence[object]]) -> Iterator[str]:
    tools = [mapping(tool) for tool in listed(body.get("tools"))]
    if not tools and ("tools" in body or any(_call_ids(contents))):
        yield "tools: there are none"
    for place, tool in enumerate(tools):
        at = f"tools[{place}]"
        if not is_name(tool.get("name"), WORD, _LONGEST_NAME):
            yield f"{at}: the name {tool.get('name')!r} is not of the allowed form"
        schema = mapping(tool.get("input_schema"))
        yield from bad_schema(tool.get("input_schema"), f"{at}.input_schema")
        for keyword in _NOT_AT_TOP:
            if keyword in schema:
                yield f"{at}.input_schema: has {keyword} at its top"
        for name in mapping(schema.get("properties")):
            if not _PROPERTY.fullmatch(name):
                yield f"{at}.input_schema: the property {name!r} is not of the allowed form"
    named = ((f"tools[{place}]", tool.get("name")) for place, tool in enumerate(tools))
    yield from repeated(named, "name")
    yield from _deferred(tools, contents)


def _deferred(
    tools: Sequence[Mapping[str, object]], contents: Sequence[Sequence[object]]
) -> Iterator[str]:
    """Report deferred tools that can't be found, and references to tools that aren't deferred."""
    deferred = {str(tool.get("name")): tool for tool in tools if tool.get("defer_loading")}
    if deferred and len(deferred) == len(tools):
        yield "tools: all are deferred"
    for name, tool in deferred.items():
        if "cache_control" in tool:
            yield f"tools: the deferred {name!r} has a cache mark"
    results = (mapping(block).get("content") for content in contents for block in content)
    for part in (mapping(part) for result in results for part in listed(result)):
        if part.get("type") == "tool_reference" and part.get("tool_name") not in deferred:
            yield f"tools: {part.get('tool_name')!r} is referred to, and isn't deferred"


def _marks(body: Mapping[str, object], contents: Sequence[Sequence[object]]) -> Iterator[str]:
    places = [
        (f"{field}[{place}]", mapping(block))
        for field in ("tools", "system")
        for place, block in enumerate(listed(body.get(field)))
    ]
    places += [
        (f"messages[{place}].content[{number}]", mapping(block))
        for place, content in enumerate(contents)
        for number, block in enumerate(content)
    ]
    marked = [(at, block) for at, block in places if "cache_control" in block]
    if len(marked) > _MOST_MARKS:
        yield f"{marked[_MOST_MARKS][0]}: more than {_MOST_MARKS} cache marks"
    for at, block in marked:
        if mapping(block["cache_control"]).get("type") != "ephemeral":
            yield f"{at}: the cache mark is of no known type"
        if block.get("type") in _THOUGHTS:
            yield f"{at}: a thought may not be marked"


def _thoughts_behind(
    parts: Sequence[Sequence[object]], contents: Sequence[Sequence[object]]
) -> Iterator[str]:
    """Report leading thoughts of ``parts`` that no message opens with."""
    openings = [content[0] for content in contents if content]
    for number, run in enumerate(parts):
        leads = bool(run) and mapping(run[0]).get("type") in _THOUGHTS
        if leads and run[0] not in openings:
            yield f"provider_parts {number}: something precedes the thought that leads them"
