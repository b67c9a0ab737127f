from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from formatters.model import Facts, MemoryView, Message, TrimPolicy
from formatters.native import native_history, run_so_far
from formatters.rows import read_rows

START = datetime(2025, 12, 9, 8, 0, tzinfo=UTC)


def rows(*said: tuple[str, Any, Any]) -> tuple[Message, ...]:
    """Read rows of role, content and metadata, a minute after each other, with ids m0 and so on."""
    return read_rows(
        {
            "id": f"m{place}",
            "role": role,
            "content": content,
            "metadata": metadata,
            "timestamp": (START + timedelta(minutes=place)).isoformat(),
        }
        for place, (role, content, metadata) in enumerate(said)
    )


def calls(*ids: str) -> dict[str, Any]:
    """Return the metadata of a message with these calls."""
    return {"tool_calls": [{"id": each, "name": "f", "arguments": {}} for each in ids]}


TALK = rows(
    ("user", "q0", None),
    ("ai", "", calls("c1", "c2")),
    ("tool", "r2", {"tool_call_id": "c2"}),
    ("tool", "r1", {"tool_call_id": "c1"}),
    ("ai", "a4", None),
    ("system", "obey", None),
    ("user", "[THIS_MOMENT]", None),
)


def facts(history: tuple[Message, ...] = (), **rest: Any) -> Facts:
    """Return facts of the chat layout."""
    return Facts(current_input="", history=history, layout="chat", **rest)


def test_history_is_replayed_in_units() -> None:
    """A message, or a call with its results in the order of the calls; all guarded."""
    block = native_history(facts(TALK))

    assert block.tag == "HISTORY"
    assert block.native
    assert block.gives_way is TrimPolicy.BY_STRATEGY
    assert [[m.content for m in entry.native] for entry in block.entries] == [
        ["q0"],
        ["", "r1", "r2"],
        ["a4"],
        ["\\[THIS_MOMENT]"],
    ]
    assert [[m.id for m in entry.messages] for entry in block.entries] == [
        ["m0"],
        ["m1", "m3", "m2"],
        ["m4"],
        ["m6"],
    ]
    assert [entry.rows for entry in block.entries] == [1, 3, 1, 1]
    assert block.entries[1].results == {"m3": 1, "m2": 2}
    assert block.entries[1].repairs == {"m3": "result_moved"}
    assert [(each.message_ids, each.reason) for each in block.omissions] == [(("m5",), "role")]
    assert not block.volatile


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        (None, ["q0", "", "a4", "\\[THIS_MOMENT]"]),
        (6, ["q0", "", "a4", "\\[THIS_MOMENT]"]),
        (5, ["", "a4", "\\[THIS_MOMENT]"]),
        (4, ["a4", "\\[THIS_MOMENT]"]),
        (1, ["\\[THIS_MOMENT]"]),
        (0, []),
    ],
)
def test_the_limit_counts_messages(limit: int | None, kept: list[str]) -> None:
    """A unit goes in whole or not at all, and none goes in behind it."""
    block = native_history(facts(TALK, memory=MemoryView(limit=limit)))

    assert [entry.native[0].content for entry in block.entries] == kept
    beyond = [each for each in block.omissions if each.reason == "memory_limit"]
    assert (
        sum(len(each.message_ids) for each in beyond)
        + sum(len(entry.messages) for entry in block.entries)
        == len(TALK) - 1
    )
    assert block.moves is bool(beyond)


def test_history_that_was_not_read_ends_the_cache() -> None:
    """Its beginning moves with every turn."""
    assert native_history(facts(TALK, more_history=True)).moves


def test_a_unit_can_be_shortened() -> None:
    """Each of its messages, to the same length."""
    (entry,) = native_history(facts(rows(("user", "x" * 50, None)))).entries

    assert entry.longest == 50
    assert entry.shorten
    assert entry.shorten(10).native[0].content == "xxxxxxx..."


def test_a_unit_is_as_long_as_its_longest_message() -> None:
    """Beyond that, shortening changes nothing."""
    talk = rows(("ai", "look", calls("c1")), ("tool", "x" * 50, {"tool_call_id": "c1"}))
    (entry,) = native_history(facts(talk)).entries

    assert entry.longest == 50


def test_made_up_results_are_no_candidates() -> None:
    """Nor are they cleared."""
    (entry,) = native_history(facts(rows(("ai", "", calls("c1"))))).entries

    assert [message.role for message in entry.native] == ["assistant", "tool"]
    assert [message.id for message in entry.messages] == ["m0"]
    assert entry.results == {}
    assert entry.repairs == {"m0": "result_missing"}


def test_the_run_follows_as_it_came() -> None:
    """In the order given, pending calls included."""
    run = rows(
        ("ai", "", calls("c1")), ("tool", "r", {"tool_call_id": "c1"}), ("ai", "", calls("c2"))
    )
    (block,) = run_so_far(facts(run=run))

    assert block.tag == "RUN"
    assert block.native
    assert block.gives_way is TrimPolicy.ALL_BUT_NEWEST
    assert block.volatile
    assert [entry.repairs for entry in block.entries] == [{}, {"m2": "result_pending"}]


def test_what_a_run_leaves_out_is_told() -> None:
    """As of history."""
    (block,) = run_so_far(facts(run=rows(("system", "obey", None), ("ai", "a", None))))

    assert [(each.message_ids, each.reason) for each in block.omissions] == [(("m0",), "role")]


def test_no_run_is_no_block() -> None:
    """Where nothing has come of the input yet."""
    assert run_so_far(facts()) == ()


@pytest.mark.parametrize("parts", [None, ["signed"]])
def test_calls_of_history_and_run_have_ids_of_their_own(parts: object) -> None:
    """History keeps its own, so that it stays the same, but not against what is passed on."""
    called = {**calls("c1"), "provider_parts": parts}
    both = facts(rows(("ai", "", calls("c1"))), run=rows(("ai", "", called)))
    history = native_history(both)
    (run,) = run_so_far(both, history)
    ids = [block.entries[0].native[0].tool_calls[0].id for block in (history, run)]

    assert ids.index("c1") == (0 if parts is None else 1)
    assert len(set(ids)) == 2
