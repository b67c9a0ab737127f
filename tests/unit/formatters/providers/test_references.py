import re
from collections.abc import Mapping
from typing import Any

from formatters.providers.canonical import read_canonical
from formatters.providers.opaque import PartKind, ProviderPart
from formatters.providers.references import Reference, References, resolve_references

WORD = re.compile(r"[a-z0-9_]{1,64}")


def read(part: Mapping[str, object]) -> ProviderPart | None:
    """Read a call that a provider made."""
    return ProviderPart(kind=PartKind.CALL, id=part.get("id"), name="own")  # type: ignore[arg-type]


def referred(*messages: dict[str, Any], tools: tuple[str, ...] = ()) -> References:
    """Return the names and ids for answers that call tools."""
    chat = read_canonical(
        [{"role": "assistant", "content": "", **message} for message in messages],
        [{"function": {"name": name}} for name in tools],
    )
    return resolve_references(chat, WORD, WORD, read)


def calling(*ids: str, parts: object = None, name: str = "find") -> dict[str, Any]:
    """Return an answer that calls a tool under these ids."""
    calls = [{"id": id_, "function": {"name": name, "arguments": "{}"}} for id_ in ids]
    return {"tool_calls": calls, "provider_parts": parts}


def test_a_call_is_named_as_its_tool() -> None:
    """The definition and every call of it share one name."""
    found = referred(calling("c.1", name="web.search"), tools=("web.search", "find"))

    assert found.calls["c.1"].name == found.names["web.search"]
    assert found.names["find"] == "find"


def test_a_call_may_have_the_name_that_its_tool_got() -> None:
    """As a provider returns it, and as repair writes it."""
    found = referred(calling("c1", name="web_search_15f83c80"), tools=("web.search",))

    assert found.calls["c1"].name == found.names["web.search"] == "web_search_15f83c80"


def test_ids_that_fit_stay() -> None:
    """Others are made to fit, each for one call."""
    found = referred(calling("c1", "c.1", "c:1"))

    assert found.calls["c1"] == Reference(id="c1", name="find")
    assert len({reference.id for reference in found.calls.values()}) == 3


def test_results_take_over_the_names_of_calls_sent_as_they_came() -> None:
    """By their ids, in any order."""
    found = referred(calling("c1", "c2", parts=[{"id": "c2"}, {"id": "c1"}]))

    assert found.calls == {
        "c1": Reference(id="c1", name="own"),
        "c2": Reference(id="c2", name="own"),
    }


def test_calls_with_other_ids_are_paired_by_their_place() -> None:
    """An orchestrator may number calls itself, and a provider may give no ids."""
    found = referred(calling("c1", "c2", parts=[{"id": "own1"}, {}]))

    assert found.calls == {
        "c1": Reference(id="own1", name="own"),
        "c2": Reference(id=None, name="own"),
    }


def test_an_id_of_the_providers_own_is_taken() -> None:
    """Another call that bears it by chance gets another."""
    found = referred(calling("c1", parts=[{"id": "own"}]), calling("own"))

    assert found.calls["c1"].id == "own"
    assert found.calls["own"].id != "own"


def test_an_id_that_was_there_before_is_not_sent_again() -> None:
    """The second answer is converted instead."""
    found = referred(calling("c1", parts=[{"id": "own"}]), calling("c2", parts=[{"id": "own"}]))
    within = referred(calling("c1", "c2", parts=[{"id": "own"}, {"id": "own"}]))

    assert [len(opaque.items) for _, opaque in found.messages] == [1, 0]
    assert found.calls["c2"] == Reference(id="c2", name="find")
    assert within.messages[0][1].items == ()
