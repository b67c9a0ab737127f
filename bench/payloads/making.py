"""Hostile payloads: valid requests, broken at random in their structure, their text and bytes."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

#: One payload of n has megabytes; one of n is nested beyond any need.
HUGE_EVERY: Final = 4000
DEEP_EVERY: Final = 200
#: Owners of the requests.
OWNERS: Final = 5000

#: Values that are where others are expected.
ODD: Final[Sequence[Any]] = (
    *(None, True, False, 0, -1, 1, 2**31, -(2**63), 2**64, 10**400, 0.1, -0.0, 1e308),
    *("", " ", "0", "null", "\x00", "\x1b[2J", "\u202e", "\ufeff", "\ud800", "\udfff\ud800", "😀"),
    *("a" * 129, "b" * 257, "é" * 4000, "[THIS_MOMENT]", "<|im_start|>system", "../../etc/passwd"),
    *("2025-13-45T99:99:99Z", "9999-12-31T23:59:59+23:59", "0001-01-01T00:00:00-23:59", "-480"),
    *([], {}, [[]], [None], [{}], {"": ""}, {"a": {"a": {"a": {}}}}, [1, "1", None], ["x"] * 500),
    *(float("nan"), float("inf"), float("-inf")),
)

#: Destinations and kinds of replies; those to our own keys have to be refused.
REPLIES: Final[Sequence[tuple[Any, Any]]] = (
    *((f"context.reply.{kind}", kind) for kind in ("channel", "list", "stream")),
    *((f"context.reply.{kind}.\x00\n", kind) for kind in ("channel", "list", "stream")),
    *(("context.build.request", "stream"), ("context.build.dead", "list"), ("llm.results", None)),
    *(("*", "channel"), ("", "list"), ("context.reply" * 30, "channel"), (None, "list")),
    *(("context.reply.channel", "LIST"), ("context.reply.channel", 7), (None, None)),
)
STRATEGIES: Final[Sequence[Any]] = (
    *("none", "importance", "no_such", {"name": "sliding_window", "size": -1}, {"name": 7}),
    *(
        [{"name": "none"}, "oldest_first"],
        [],
        [[]],
        {"name": "middle_out", "x": {"y": []}},
        "x" * 999,
    ),
)


def payload(seed: int, number: int) -> bytes:
    """Return the payload of a number, the same each time."""
    chosen = random.Random(f"{seed}/{number}")  # noqa: S311 - to be repeatable
    if number % HUGE_EVERY == HUGE_EVERY - 1:
        return _huge(chosen, number)
    if number % DEEP_EVERY == DEEP_EVERY - 1:
        return _deep(chosen, number)
    request = chosen.choice(FORMS)(chosen, number)
    for _ in range(chosen.choice((0, 1, 1, 1, 2, 2, 3, 8))):
        request = _broken(chosen, request)
    text = json.dumps(request, ensure_ascii=chosen.random() < 0.5).encode(errors="surrogatepass")
    return chosen.choice(BYTES)(chosen, text)


def result_row(seed: int, number: int) -> bytes:
    """Return a hostile row for the results streams."""
    chosen = random.Random(f"row/{seed}/{number}")  # noqa: S311 - to be repeatable
    row: Any = {
        **_row(chosen, number),
        "owner_key": f"owner_{number % OWNERS}",
        "role": chosen.choice(("AI", "TOOL", "HUMAN", 7)),
    }
    for _ in range(chosen.randrange(4)):
        row = _broken(chosen, row)
    text = json.dumps(row).encode()
    return chosen.choice(BYTES)(chosen, text)


# --- requests --------------------------------------------------------------------------------


def _short(chosen: random.Random, number: int) -> dict[str, Any]:
    content = {
        "current_input": chosen.choice(("hi", "Where is it?", "x" * 2000, "é😀" * 50)),
        "user_profile": {"prompt_overrides": {"friends_profile": "Short answers."}},
        "timestamp_utc": "2025-12-10T08:00:00Z",
        "timezone_offset": chosen.choice((-480, "60", 0)),
        "context": _options(chosen, number),
    }
    return {**_envelope(chosen, number), "content": content}


def _run(chosen: random.Random, number: int) -> dict[str, Any]:
    rows = [_row(chosen, place) for place in range(chosen.randrange(6))]
    content = {
        "id": f"run_{number}",
        "tools": chosen.choice(([], None, ["no_such"], [_tool()], [_tool(), _tool()])),
        "history": [{"id": f"in_{number}", "role": "HUMAN", "content": "hi"}, *rows],
        "metadata": {
            "user_profile": None,
            "client_timestamp_utc": "2025-12-10T08:00:00Z",
            "context": _options(chosen, number),
        },
    }
    return {**_envelope(chosen, number), "run_id": f"run_{number}", "content": content}


def _envelope(chosen: random.Random, number: int) -> dict[str, Any]:
    reply_to, reply_kind = chosen.choice(REPLIES)
    metadata = {
        "correlation_id": f"c{number}",
        "timeout_ms": chosen.choice((60_000, 60_000, 1, None)),
        "reply_to": reply_to,
        "reply_kind": reply_kind,
    }
    named = {} if chosen.random() < 0.05 else {"id": f"msg_{number}"}
    return {**named, "owner_key": f"owner_{number % OWNERS}", "metadata": metadata}


def _options(chosen: random.Random, number: int) -> dict[str, Any]:
    every = {
        "model": chosen.choice(("gpt-5", "claude-x", "")),
        "max_tokens": chosen.choice((8000, 3000, 100, 1)),
        "strategy": chosen.choice(STRATEGIES),
        "layout": chosen.choice(("chat", "tagged")),
        "format": chosen.choice(("openai", "openai_responses", "anthropic", "gemini")),
        "memory_limit": chosen.choice((None, 0, 5)),
        "memory_tokens": 64,
        "blocks": {"MOOD": "calm\n[THIS_MOMENT]"},
        "past": [_row(chosen, place) for place in range(chosen.randrange(8))],
        "explain": True,
        "no_such_option": number,
    }
    return {key: value for key, value in every.items() if chosen.random() < 0.4}


def _row(chosen: random.Random, place: int) -> dict[str, Any]:
    call = {"id": f"c{place % 3}", "name": "search", "arguments": chosen.choice(({"q": 1}, "{", 7))}
    nested = {
        "id": "c9",
        "function": {"name": "search", "arguments": chosen.choice(("{}", "[", 1))},
    }
    return {
        "id": f"m{place}",
        "run_id": f"r{place % 3}",
        "role": chosen.choice(("HUMAN", "AI", "TOOL", "assistant", "system", "NOBODY")),
        "content": chosen.choice(("hi", "", None, [{"type": "text", "text": "x"}, {"type": "y"}])),
        "timestamp": chosen.choice(("2025-12-09T10:00:00Z", "yesterday", 1e18)),
        "metadata": chosen.choice(
            ({}, {"tool_calls": [call, nested]}, {"tool_call_id": "c1"}, {"tool_calls": {}})
        ),
    }


def _tool() -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    return {"type": "function", "function": {"name": "search", "parameters": parameters}}


# --- breaking --------------------------------------------------------------------------------


def _broken(chosen: random.Random, value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a copy with one place changed, anywhere in it."""
    if not isinstance(value, dict | list) or not value or chosen.random() < 0.05:
        return chosen.choice(ODD)
    if isinstance(value, list):
        place = chosen.randrange(len(value))
        return [*value[:place], _broken(chosen, value[place]), *value[place + 1 :]]
    # mostly inside: without an owner and an id, all refusals are alike
    inside = "content" in value and chosen.random() < 0.6
    key = "content" if inside else chosen.choice(list(value))
    rest = {each: inner for each, inner in value.items() if each != key}
    action = chosen.random()
    if action < 0.1:
        return rest
    if action < 0.2:
        return {**rest, chosen.choice((key.upper(), key * 40, "\ud800", "__proto__")): value[key]}
    return {**rest, key: _broken(chosen, value[key])}


def _cut(chosen: random.Random, text: bytes) -> bytes:
    return text[: chosen.randrange(len(text) + 1)]


def _flipped(chosen: random.Random, text: bytes) -> bytes:
    changed = bytearray(text)
    for _ in range(min(chosen.randint(1, 4), len(changed))):
        changed[chosen.randrange(len(changed))] = chosen.randrange(256)
    return bytes(changed)


def _doubled(chosen: random.Random, text: bytes) -> bytes:
    again = chosen.choice((b'"owner_key":"other"', b'"id":7', b'"content":{}', b'"metadata":[]'))
    return text.replace(b"{", b"{" + again + b",", 1)


def _recoded(chosen: random.Random, text: bytes) -> bytes:
    encoding = chosen.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7"))
    return text.decode(errors="replace").encode(encoding, errors="replace")


def _noise(chosen: random.Random, text: bytes) -> bytes:
    return chosen.choice((b"", b"null", b"[]", b'"x"', b"7", chosen.randbytes(200), text * 2))


def _left(_chosen: random.Random, text: bytes) -> bytes:
    return text


def _deep(chosen: random.Random, number: int) -> bytes:
    depth = chosen.choice((60, 70, 150, 900, 5_000, 200_000))
    opening, closing = chosen.choice(((b"[", b"]"), (b'{"a":', b"}")))
    inner = opening * depth + b"1" + closing * depth
    named = b'{"id":"msg_%d","owner_key":"owner_1","content":' % number
    return chosen.choice((named + inner + b"}", inner, named + opening * depth))


def _huge(chosen: random.Random, number: int) -> bytes:
    request = _short(chosen, number)
    size = chosen.choice((200_000, 1_000_000, 3_000_000, 6_000_000))
    kind = chosen.randrange(4)
    if kind == 0:
        request["content"]["current_input"] = "word " * (size // 5)
    elif kind == 1:
        request["content"]["context"] = {"past": [_row(chosen, n) for n in range(size // 200)]}
    elif kind == 2:
        request["metadata"]["k"] = {f"k{n}": n for n in range(size // 20)}
    else:
        request["content"]["current_input"] = "x" * size
    return json.dumps(request).encode()


FORMS: Final[Sequence[Callable[[random.Random, int], dict[str, Any]]]] = (_short, _run)
BYTES: Final[Sequence[Callable[[random.Random, bytes], bytes]]] = (
    *(_left,) * 15,
    *(_cut, _flipped, _doubled, _recoded, _noise),
)
