import re
from collections.abc import Mapping
from typing import Any

import pytest

from formatters.providers.canonical import read_canonical
from formatters.providers.opaque import PartKind, ProviderPart
from formatters.providers.references import (
    Reference,
    References,
    fit_names,
    fits,
    resolve_references,
)

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


FORM = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


@pytest.mark.parametrize("name", ["web_search", "a-b", "_", "x" * 64])
def test_a_name_that_fits_stays(name: str) -> None:
    """Nobody has to learn another name without need."""
    assert fit_names([name], FORM) == {name: name}


@pytest.mark.parametrize(
    "name", ["a.b", "ünï", "", "x" * 65, "9lives", "-dash", " ", "\n", "\ud83d"]
)
def test_a_name_that_does_not_fit_is_made_to(name: str) -> None:
    """Its valid characters are kept, and a hash distinguishes it from others."""
    made = fit_names([name], FORM)[name]

    assert fits(made, FORM)
    assert re.search(r"_[0-9a-f]{8}$", made)


def test_a_made_name_does_not_depend_on_its_neighbours() -> None:
    """A call is named alike in every build, so that a provider's cache hits."""
    alone = fit_names(["a.b"], FORM)

    assert fit_names(["x.y", "a.b", "a_b", "other"], FORM)["a.b"] == alone["a.b"]


def test_names_that_look_alike_stay_apart() -> None:
    """What a name loses, its hash keeps."""
    made = fit_names(["a.b", "a:b", "a b", "a_b"], FORM)

    assert len(set(made.values())) == 4
    assert made["a_b"] == "a_b"


def test_a_made_name_gives_way_to_one_that_is_taken() -> None:
    """Whether somebody bears it by right, or the provider gave it."""
    made = fit_names(["a.b"], FORM)["a.b"]
    second = fit_names(["a.b", made], FORM)
    third = fit_names(["a.b"], FORM, {made, second["a.b"]})

    assert second[made] == made
    assert len({made, second["a.b"], third["a.b"]}) == 3


def test_a_name_that_is_taken_is_made_again() -> None:
    """The provider's own id stays with the provider's own call."""
    assert fit_names(["call_1"], FORM, {"call_1"})["call_1"].startswith("call_1_")


@pytest.mark.parametrize("name", [None, 7, "", ["a"]])
def test_what_is_no_name_fits_nothing(name: object) -> None:
    """A part may hold anything in the place of a name."""
    assert not fits(name, FORM)
