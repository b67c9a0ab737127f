"""Messages of version 1.0, as they were when it was frozen, mean the same today.

The files in `tests/golden/v1.0` are never edited. A minor version may add keys and codes.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from service.adapters.bus_records import read_dead_letter
from service.wire.documents import example
from service.wire.events import Compacted, Event, Pruned, Summarized
from service.wire.history_row import ResultRow
from service.wire.request import decode
from service.wire.response import BuildResponse
from tests.published import published
from tests.support import MakeBuilder

ROOT = Path(__file__).parents[4]
FROZEN = ROOT / "tests" / "golden" / "v1.0"

ASKED = ("chat", "invalid", "run", "short")

#: The id and the fingerprint of each request that can be built. Answers are stored under them, so
#: that a retry that meets an upgrade gets its answer.
NAMED: Mapping[str, tuple[str, str]] = {
    "chat": ("msg_c", "e0666c267eb61bafc5e9efca2712ea8b50475e1fc72d56cce04e15b49041127b"),
    "run": ("msg_7c01", "9710b5e98a61b3a9dd21c318b5c345509013937e6ad54e6afb16b7c214783c3d"),
    "short": (
        "msg_17f238d457e856b06066acec38cad8df",
        "1f83cbc4aa6fbe4c2703d1bf03bad03e117128b33a56db3da7e790bac5249a5a",
    ),
}

#: The models that read the other messages.
MODELS: Mapping[str, type[BaseModel]] = {
    "context_pruned": Event[Pruned],
    "context_summarized": Event[Summarized],
    "context_compacted": Event[Compacted],
    "result_row": ResultRow,
}

#: Values that may change between versions: texts, their weights, and values made of them; and
#: how many rows have each decision, since a new one may say more than an old one did.
FREE = (
    *("/content/messages/*/content", "/content/usage/", "/content/build_id"),
    *("detail", "title", "/tokens", "/content/kept", "/content/dropped"),
)


def frozen(name: str) -> Any:
    """Return a message as it was."""
    return json.loads((FROZEN / f"{name}.json").read_text(encoding="utf-8"))


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value that holds no other, with its place; members of lists share theirs."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from leaves(each, f"{place}/{key}")
    elif isinstance(value, list) and value:
        for each in value:
            yield from leaves(each, f"{place}/*")
    else:
        yield place, value


def kind(value: Any) -> str:
    """Return what JSON calls a value; a number stays one with and without a fraction."""
    return "number" if type(value) in (int, float) else type(value).__name__


def is_free(place: str) -> bool:
    """Return whether a value may differ today."""
    return any(each in place for each in FREE[:3]) or place.endswith(FREE[3:])


def missing(old: Any, new: Any) -> list[str]:
    """Return the places at which a reader of the old message wouldn't find what it looks for."""
    now = list(leaves(new))
    kinds = {(place, kind(value)) for place, value in now}
    values = {(place, repr(value)) for place, value in now}
    return [
        place
        for place, value in leaves(old)
        if (place, kind(value)) not in kinds
        or not (is_free(place) or (place, repr(value)) in values)
    ]


@pytest.mark.parametrize("name", ASKED)
async def test_an_old_request_is_answered_alike(name: str, make_builder: MakeBuilder) -> None:
    """Every key of the old answer is in today's, and what is no wording has the same value."""
    response = await make_builder().handle_build_request(frozen(f"request_{name}"))

    assert missing(frozen(f"response_{name}"), json.loads(response.model_dump_json())) == []


@pytest.mark.parametrize("name", list(NAMED))
def test_an_old_request_is_read_from_its_bytes(name: str) -> None:
    """As workers read it, under the name and fingerprint that it had; today's schema takes it."""
    request = decode((FROZEN / f"request_{name}.json").read_bytes())

    assert (request.id, request.fingerprint) == NAMED[name]
    published("request").validate(frozen(f"request_{name}"))


@pytest.mark.parametrize("name", ASKED)
def test_an_old_response_is_read_by_todays_client(name: str) -> None:
    """Workers are upgraded after their callers as well as before."""
    old = frozen(f"response_{name}")

    response = BuildResponse.model_validate(old)
    assert missing(old, json.loads(response.model_dump_json())) == []


@pytest.mark.parametrize("name", list(MODELS))
def test_old_events_and_rows_are_read(name: str) -> None:
    """And lose nothing by it; today's schema takes them."""
    old = frozen(name)

    read = MODELS[name].model_validate_json(json.dumps(old))
    written = json.loads(read.model_dump_json())
    if name == "result_row":
        written["role"] = written["role"].upper()
    assert missing(old, written) == []
    published(name).validate(old)


def test_an_old_dead_letter_is_read() -> None:
    """With all of its fields."""
    old = frozen("dead_letter")

    letter = read_dead_letter("1-0", {key: value.encode() for key, value in old.items()})
    assert (letter.payload.decode(), letter.reason) == (old["data"], old["reason"])
    assert (letter.source, letter.entry) == (old["source"], old["entry"])
    assert letter.attempts == int(old["attempts"])
    assert letter.at is not None


def test_keys_that_come_later_do_no_harm() -> None:
    """Today's reader takes what tomorrow's minor version says, in every message."""
    request = {**frozen("request_run"), "schema_version": "1.9", "mood": "calm"}
    response = {**frozen("response_short"), "schema_version": "1.9", "mood": "calm"}

    assert decode(json.dumps(request).encode()).id == request["id"]
    assert BuildResponse.model_validate(response).id == response["id"]
    for name, model in MODELS.items():
        model.model_validate_json(json.dumps({**frozen(name), "mood": "calm"}))


def test_the_examples_of_the_documents_are_the_frozen_messages() -> None:
    """What is published today is what is held to."""
    names = ["request_short", "request_run", "response_short", "response_invalid", *MODELS]
    for name in [*names, "dead_letter"]:
        assert example(name) == frozen(name), name


def test_a_lost_key_is_noticed() -> None:
    """The comparison sees keys that go, change their kind or their value, and no new ones."""
    old = {"a": 1, "b": [{"c": "x"}], "detail": "so"}

    assert missing(old, {**old, "d": 2, "detail": "otherwise"}) == []
    assert missing(old, {"b": [{"c": "x"}], "detail": "so"}) == ["/a"]
    assert missing(old, {**old, "a": 2}) == ["/a"]
    assert missing(old, {**old, "b": [{"c": None}]}) == ["/b/*/c"]
    assert missing(old, {**old, "detail": None}) == ["/detail"]
