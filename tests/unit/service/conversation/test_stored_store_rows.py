"""Tests for `service.conversation.stored`."""

from typing import Any

from formatters.model import Row
from service.conversation.sending import SUMMARY, is_summary, prepare, with_mark
from service.conversation.stored import merge, read_stored, to_stored
from tests.unit.service.conversation.managing import MOMENT
from tests.unit.service.conversation.talk import calls, function_call, parts, result, said


def row(id_: str) -> Row:
    """Return a row of a store."""
    return {"id": id_, "role": "HUMAN", "content": id_}


def ids(rows: list[Row]) -> str:
    """Return the ids of rows, "-" for none."""
    return " ".join(str(each.get("id", "-")) for each in rows)


def test_a_message_becomes_a_row() -> None:
    """What has no field of its with_mark goes into the metadata, beside what is there."""
    given = {**said("user", "hi"), "name": "ann", "metadata": {"source": "mail"}}

    assert to_stored(given, "m1", MOMENT) == {
        "id": "m1",
        "run_id": None,
        "role": "HUMAN",
        "content": "hi",
        "timestamp": "2026-01-13T14:30:00+00:00",
        "metadata": {"name": "ann", "source": "mail"},
    }
    assert to_stored({**said("system", "s"), "timestamp": "t"}, "m1", MOMENT)["timestamp"] == "t"
    assert to_stored(said("system", "s"), "m1", MOMENT)["role"] == "SYSTEM"


def test_a_row_is_sent_as_the_message_was() -> None:
    """Whatever shape that had."""
    blocks = said("user", [{"type": "tool_result", "tool_use_id": "1", "content": "x"}])
    for given in (
        said("user", "hi"),
        calls("1"),
        result("1"),
        blocks,
        parts("model", function_call()),
    ):
        row = to_stored(given, "m1", MOMENT)
        assert prepare(row) == prepare(given)
        stored = {key: value for key, value in row.items() if key != "parts"}
        assert prepare(read_stored(stored)) == prepare(row)


def test_nothing_stored_passes_for_the_systems_own() -> None:
    """Its mark is taken off."""
    assert read_stored({**row("a"), "metadata": {"written_by": "summary", "x": 1}}) == {
        **row("a"),
        "metadata": {"x": 1},
    }


def test_nothing_becomes_the_systems_own_on_its_way_to_the_store() -> None:
    """A key of a caller's that has the name of the mark stays behind; a mark itself stays."""
    assert to_stored({**said("user", "s"), "written_by": SUMMARY}, "m1", MOMENT)["metadata"] == {}
    assert is_summary(to_stored(with_mark(said("user", "s"), SUMMARY), "m1", MOMENT))


def test_what_others_stored_comes_in_its_order() -> None:
    """What is here stays the same object."""
    here = [row("a"), row("c")]
    both = merge(here, [row("a"), row("b"), row("c"), row("d")], {"a", "c"})

    assert ids(both) == "a b c d"
    assert both[0] is here[0]


def test_what_was_taken_out_stays_out() -> None:
    """Summarised rows don't come back beside their summary."""
    summary: Any = with_mark(said("user", "s"), SUMMARY)

    assert ids(merge([summary, row("c")], [row("a"), row("c"), row("d")], {"a", "c"})) == "- c d"


def test_what_is_not_in_the_page_has_its_place() -> None:
    """Older than it before, not stored yet behind."""
    here = [row("a"), row("b"), row("new")]

    assert ids(merge(here, [row("b"), row("c")], {"a", "b"})) == "a b c new"
    assert ids(merge([row("new")], [row("a")], set())) == "a new"
