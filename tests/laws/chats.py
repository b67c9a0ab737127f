"""Generated conversations in the canonical form, as any history may leave them."""

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

PROVIDERS = ("openai_responses", "anthropic", "gemini")


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation, and what in it belongs to which provider."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    #: How many messages lead unchanged.
    stable: int
    #: By place of the message: whose shape its parts have.
    owners: dict[int, str]

    def parts(self, form: str) -> list[list[Any]]:
        """Return the parts that a form has to send as they came."""
        return [
            self.messages[place]["provider_parts"]
            for place, owner in self.owners.items()
            if owner == form
        ]


texts = st.one_of(
    st.text(min_size=1, max_size=40),
    st.sampled_from(
        ["Hello", "你好 😀", "  spaced  ", '{"a": 1}', "[THIS_MOMENT]\n\\x", "\x00 odd"]
    ),
).filter(lambda text: bool(text.strip()))
results = texts | st.sampled_from(["", " ", "\n"])
tool_names = st.sampled_from(["web_search", "9lives", "x" * 64, "-dash", "get"])
names = tool_names | st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
ids = st.sampled_from(
    ["call_1", "toolu_own_1", "a.b:c/d", "x" * 80, "x" * 81, "å", "call 1", "c" * 300, "a_b_c_d"]
) | st.text(min_size=1, max_size=12).filter(lambda id_: bool(id_.strip()))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
arguments = st.one_of(
    st.dictionaries(texts, values, max_size=2).map(json.dumps),
    st.sampled_from(
        [
            "{}",
            '{"q": "\\ud83d"}',
            '{"n": 1e999}',
            '{"q": ' + "[" * 90 + "]" * 90 + "}",
            '{"a":1,"a":2}',
        ]
    ),
)
junk = st.sampled_from(
    ["text", 7, {}, [], [1], [None], [{}], [{"type": "odd"}], [{"type": []}], [{"text": ""}], [[]]]
)


@st.composite
def tools(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw definitions with names of their own."""
    chosen = draw(st.lists(tool_names, unique=True, max_size=4))
    return [{"type": "function", "function": {"name": name, **draw(_described)}} for name in chosen]


_schemas = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.just({"q": {"type": "string"}})},
    optional={"anyOf": st.just([{"required": ["q"]}]), "additionalProperties": st.just(False)},
)
_described = st.fixed_dictionaries(
    {}, optional={"description": texts, "parameters": _schemas, "strict": st.booleans()}
)


@st.composite
def chats(draw: st.DrawFn) -> Chat:
    """Draw a conversation that is valid in the canonical form."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": draw(texts)}]
    fresh = draw(st.lists(ids, unique=True, min_size=12, max_size=12))
    owners: dict[int, str] = {}
    for kind in draw(
        st.lists(st.sampled_from(["user", "answer", "calls"]), min_size=1, max_size=8)
    ):
        if kind == "user":
            messages.append({"role": "user", "content": draw(texts)})
            continue
        answer: dict[str, Any] = {"role": "assistant", "content": draw(texts)}
        calls = _calls(draw, fresh) if kind == "calls" else []
        if calls:
            answer |= {"tool_calls": calls, "content": draw(st.just("") | texts)}
        owner = draw(st.sampled_from([None, None, "junk", *PROVIDERS]))
        if owner == "junk":
            answer["provider_parts"] = draw(junk)
        elif owner:
            owners[len(messages)] = owner
            answer["provider_parts"] = PARTS[owner](answer, len(messages), draw(st.booleans()))
        answered = draw(st.permutations(calls))
        messages += [answer, *({**_result(call), "content": draw(results)} for call in answered)]
    stable = draw(st.integers(0, len(messages)))
    return Chat(messages=messages, tools=draw(tools()), stable=stable, owners=owners)


def _calls(draw: st.DrawFn, fresh: list[str]) -> list[dict[str, Any]]:
    number = min(draw(st.integers(1, 3)), len(fresh))
    return [
        {
            "id": fresh.pop(),
            "type": "function",
            "function": {"name": draw(names), "arguments": draw(arguments)},
        }
        for _ in range(number)
    ]


def _result(call: dict[str, Any]) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call["id"]}


def _anthropic(answer: dict[str, Any], place: int, whole: bool) -> list[Any]:
    thought = {"signature": f"sig{place}", "type": "thinking", "thinking": "hm"}
    if not whole:
        return [thought]
    said = [{"type": "text", "text": answer["content"]}] if answer["content"] else []
    calls = [
        {"type": "tool_use", "id": f"toolu_own_{place}_{number}", "name": "own", "input": {"z": 1}}
        for number, _ in enumerate(answer.get("tool_calls", ()))
    ]
    return [thought, *said, *calls]


def _gemini(answer: dict[str, Any], place: int, whole: bool) -> list[Any]:
    thought = {"thought": True, "text": "hm"}
    if not whole:
        return [thought, {"text": "", "thoughtSignature": "c2ln"}]
    said = [{"text": answer["content"]}] if answer["content"] else []
    calls = [
        {"function_call": {"name": "own", "args": {"number": number}}, "thought_signature": "c2ln"}
        for number, _ in enumerate(answer.get("tool_calls", ()))
    ]
    return [thought, *said, *calls]


def _openai_responses(answer: dict[str, Any], place: int, whole: bool) -> list[Any]:
    thought = {"type": "reasoning", "id": f"rs_{place}", "summary": [], "encrypted_content": "x"}
    if not whole:
        return [thought]
    content = [{"type": "output_text", "text": answer["content"], "annotations": []}]
    said = {"type": "message", "id": f"msg_{place}", "role": "assistant", "content": content}
    said["status"] = "completed"
    calls = [
        {
            "type": "function_call",
            "call_id": f"own_{place}_{number}",
            "name": "own",
            "arguments": "{}",
        }
        for number, _ in enumerate(answer.get("tool_calls", ()))
    ]
    return [thought, *([said] if answer["content"] else []), *calls]


#: The parts each provider returns with an answer: a thought alone, or the whole answer.
PARTS = {"anthropic": _anthropic, "gemini": _gemini, "openai_responses": _openai_responses}
