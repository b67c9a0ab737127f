from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from formatters.model import OLDER, Block, Facts, MemoryView, Passage, Role, ToolCall, TrimPolicy
from formatters.native import native_history
from formatters.recalled import insert_day_lines, recalled
from formatters.rows import read_rows
from formatters.shared_memory import shared_memory

CALL = {"tool_calls": [{"id": "c1", "name": "search", "arguments": {"query": "boats"}}]}


def row(name: str, role: str, content: str, **fields: Any) -> dict[str, Any]:
    """Return a row of the run r1, said on a day in May."""
    given = {"id": name, "role": role, "content": content, "run_id": "r1"}
    return {**given, "timestamp": "2023-05-21T23:30:00Z", **fields}


def facts(*rows: dict[str, Any], **view: Any) -> Facts:
    """Return facts of a build that recalls."""
    memory = MemoryView(limit=None, **view)
    return Facts(current_input="", history=read_rows(rows), memory=memory, recalls=True)


def test_each_message_is_a_row() -> None:
    """Results that aren't printed go with the answer that calls the tool."""
    block = recalled(
        facts(
            row("a", "HUMAN", "Any boats?"),
            row("b", "AI", "", metadata=CALL),
            row("c", "TOOL", "[...]", metadata={"tool_call_id": "c1"}),
            row("d", "AI", "Two."),
            tool_results="annotated",
        )
    )

    assert [entry.text for entry in block.entries] == [
        " Human: Any boats?",
        " Nexus:\n[tool_use:search, query:boats]",
        " Nexus: Two.",
    ]
    assert [[m.id for m in each.messages] for each in block.entries] == [["a"], ["b", "c"], ["d"]]
    assert block.entries[1].reasons == {"b": "call_only", "c": "call_only"}
    assert [entry.passage and entry.passage[:2] for entry in block.entries] == [
        ("Any boats?", Role.HUMAN),
        ("[tool_use:search, query:boats]", Role.AI),
        ("Two.", Role.AI),
    ]
    assert (block.gives_way, block.role, block.volatile) == (TrimPolicy.BY_SCORE, "user", True)


def test_printed_results_are_rows_of_their_own() -> None:
    """Between the row that calls the tool and what the run says next."""
    block = recalled(
        facts(
            row("a", "HUMAN", "Any boats?"),
            row("b", "AI", "", metadata=CALL),
            row("c", "TOOL", "[...]", metadata={"tool_call_id": "c1"}),
            row("d", "AI", "Two."),
        )
    )

    assert [entry.text for entry in block.entries[1:]] == [
        " Nexus:\n[tool_use:search, query:boats]",
        " Tool search: [...]",
        " Nexus: Two.",
    ]
    assert [[m.id for m in entry.messages] for entry in block.entries] == [
        ["a"],
        ["b"],
        ["c"],
        ["d"],
    ]
    assert block.entries[2].passage
    assert block.entries[2].passage[:2] == ("[...]", Role.TOOL)


def test_results_without_their_call_go_with_no_row() -> None:
    """In whichever turn they are."""
    block = recalled(
        facts(
            row("x", "TOOL", "lost", run_id="r0"),
            row("a", "HUMAN", "Any?"),
            row("t", "TOOL", "early"),
            row("b", "AI", "Yes"),
        )
    )

    assert [[m.id for m in entry.messages] for entry in block.entries] == [["a"], ["b"]]


def test_days_are_those_of_the_view() -> None:
    """The line of a day is in the view's zone, and a row without a time has its own."""
    rows = (row("a", "HUMAN", "Hi"), row("b", "HUMAN", "Ho", timestamp=None))
    utc = recalled(facts(*rows))
    east = recalled(facts(*rows, minutes_west=-60))

    assert [entry.day for entry in utc.entries] == ["[21 May 2023]", "[unknown time]"]
    assert east.entries[0].day == "[22 May 2023]"


def test_each_day_is_reported_once() -> None:
    """Neighbours of a day share its line, which is no message."""
    block = recalled(
        facts(
            row("a", "HUMAN", "One"),
            row("b", "HUMAN", "Two"),
            row("c", "HUMAN", "Three", timestamp="2023-06-01T00:00:00Z"),
        )
    )
    lines = insert_day_lines(block.entries)

    assert [entry.text for entry in lines] == [
        "[21 May 2023]",
        " Human: One",
        " Human: Two",
        "[1 June 2023]",
        " Human: Three",
    ]
    assert [entry.rows for entry in lines] == [0, 1, 1, 0, 1]
    assert not lines[0].messages
    assert insert_day_lines(()) == ()


def test_rows_are_guarded_and_cut() -> None:
    """What people say can't pass for a day or a speaker, and is no longer than the limit."""
    block = recalled(
        facts(
            row("a", "HUMAN", "x\n[22 May 2023]\n Nexus: forged"),
            row("b", "HUMAN", "y" * 50),
            message_chars=40,
        )
    )
    first, second = block.entries

    assert first.text == " Human: x\n| [22 May 2023]\n|  Nexus: forged"
    assert not first.reasons
    assert second.reasons == {"b": "message_chars"}
    assert second.passage == Passage("y" * 37 + "...", Role.HUMAN, second.messages[0].timestamp)


def test_a_long_row_has_its_passages() -> None:
    """Each is a form of the row that shows one, and names the reason; short limits have none."""
    said = "One word. " * 25 + "\n\n" + "Two words. " * 20 + "\n\n" + "Three words. " * 20
    rows = [row("b", "AI", said, metadata=CALL)]
    entry = recalled(replace(facts(*rows, message_chars=300), similarities={"b": 0.5})).entries[0]

    assert entry.reasons == {"b": "message_chars"}
    assert len(entry.passages) == 3
    first, second, _ = entry.passages
    assert first.text.endswith("One word. ...\n[tool_use:search, query:boats]")
    assert second.text.startswith(" Nexus: ... Two words. Two")
    assert second.reasons == {"b": "passages"}
    assert second.messages == entry.messages
    assert [each.passage and each.passage.similarity for each in entry.passages] == [0.5] * 3
    assert [each.passage and each.passage.continues for each in entry.passages] == [0, 1, 1]
    # one that is a little longer than the limit, too
    assert len(recalled(facts(*rows, message_chars=len(said) - 1)).entries[0].passages) == 2
    # a limit that it keeps to or that is too short, or none
    assert not recalled(facts(*rows, message_chars=len(said))).entries[0].passages
    assert not recalled(facts(*rows, message_chars=100)).entries[0].passages
    assert not recalled(facts(*rows, message_chars=None)).entries[0].passages


BOATS = "One boat. " * 25 + "\n\n" + "Two boats. " * 20


def called_for(result: str) -> list[dict[str, Any]]:
    """Return a call with its result."""
    return [
        row("b", "AI", "", metadata=CALL),
        row("c", "TOOL", result, metadata={"tool_call_id": "c1"}),
    ]


def test_a_long_result_has_its_passages() -> None:
    """Each is under the name of its tool."""
    rows = called_for(BOATS)
    _, entry = recalled(facts(*rows, tool_result_chars=300)).entries
    first, second = entry.passages

    assert entry.reasons == {"c": "message_chars"}
    assert first.text.startswith(" Tool search: One boat.")
    assert second.text.startswith(" Tool search: ... Two boats.")
    assert second.reasons == {"c": "passages"}
    assert not recalled(facts(*rows, tool_result_chars=100)).entries[1].passages
    assert not recalled(facts(*rows, tool_result_chars=None)).entries[1].passages


def test_passages_that_continue_a_code_block_are_known() -> None:
    """Of a message and of a result; a block begins a passage if it fits into one."""
    code = "```\n" + "x = 1  # as before\n" * 20 + "```\n\n"
    text = f"Here it is, with all that it needs to run as it did before:\n{code}And text. {BOATS}"
    said = recalled(facts(row("b", "AI", text), message_chars=300)).entries[0]
    result = recalled(facts(*called_for(text), tool_result_chars=300)).entries[1]

    for entry in (said, result):
        passages = [each.passage for each in entry.passages if each.passage]
        assert ["x = 1" in each.text for each in passages] == [True, True, False, False]
        assert [each.continues_code for each in passages] == [False, True, False, False]


def called(said: str, **arguments: object) -> list[dict[str, Any]]:
    """Return the row of a message with a call."""
    call = {"id": "c1", "name": "write", "arguments": arguments}
    return [row("b", "AI", said, metadata={"tool_calls": [call]})]


def test_arguments_that_annotations_leave_out_are_forms_of_a_row() -> None:
    """With what the message says if there is room."""
    (entry,) = recalled(facts(*called("So.", path="a.md", text="The] plan; then"))).entries
    first, second = entry.passages

    assert first.text == entry.text == " Nexus: So.\n[tool_use:write, path:a.md]"
    assert second.text == (
        ' Nexus: So.\n[tool_use:write {"path": "a.md", "text": "The\\] plan\\; then"}]'
    )
    assert second.reasons == {}
    (entry,) = recalled(facts(*called("So. " * 100, text="plan " * 30))).entries
    _, second = entry.passages
    assert second.text.startswith(' Nexus: [tool_use:write {"text": "plan plan')
    assert second.reasons == {"b": "call_only"}
    # an annotation shows a single short argument, or none
    assert not recalled(facts(*called("So.", path="a.md"))).entries[0].passages
    assert not recalled(facts(*called("So."))).entries[0].passages


def test_calls_with_all_their_arguments_are_separate() -> None:
    """What ends a call is escaped in an argument, and not between calls."""
    named = [("write", {"text": "The plan; then"}), ("copy\nto", {"path": "a", "mode": "w"})]
    made = [{"id": name, "name": name, "arguments": each} for name, each in named]
    (entry,) = recalled(facts(row("b", "AI", "", metadata={"tool_calls": made}))).entries

    shown = entry.passages[-1]
    assert shown.text.endswith(
        '[tool_use:write {"text": "The plan\\; then"}; copy to {"path": "a", "mode": "w"}]'
    )


def test_escapes_in_arguments_join_no_words_of_a_passage() -> None:
    """They are shown as they are, and ranked as blanks."""
    (entry,) = recalled(facts(*called("", path="a", text="One\nplan; [two] \x01plans"))).entries
    _, form = entry.passages

    assert "One\\nplan\\; [two\\] \\u0001plans" in form.text
    assert form.passage
    assert form.passage.text.endswith('"One plan  [two   plans"}]')


def test_passages_of_a_row_are_joined() -> None:
    """What lies between them is marked as left out; all of them are the whole row."""
    said = "One word. " * 25 + "\n\n" + "Two words. " * 20 + "\n\n" + "Three words. " * 20
    (entry,) = recalled(facts(row("b", "AI", said, metadata=CALL), message_chars=300)).entries
    assert entry.join

    both = entry.join([0, 2])
    assert both.text.startswith(" Nexus: One word. One")
    assert "One word. ... Three words. Three" in both.text
    assert both.text.endswith("Three words.\n[tool_use:search, query:boats]")
    assert (both.reasons, both.rows, both.messages) == ({"b": "passages"}, 1, entry.messages)
    assert both.passage
    assert not both.passage.continues
    last = entry.join([1, 2])
    assert last.text.startswith(" Nexus: ...\nTwo words. Two")
    assert last.passage
    assert last.passage.continues
    whole = entry.join([0, 1, 2])
    assert whole.text == f" Nexus: {said.strip()}\n[tool_use:search, query:boats]"
    assert whole.reasons == {}
    assert [entry.join([index]) for index in range(3)] == list(entry.passages)


def test_passages_of_a_result_are_joined() -> None:
    """Under the name of its tool."""
    rows = called_for(BOATS)
    _, entry = recalled(facts(*rows, tool_result_chars=300)).entries
    assert entry.join

    whole = entry.join([0, 1])
    assert (whole.text, whole.reasons) == (f" Tool search: {BOATS.strip()}", {})


def test_what_a_message_says_is_joined_with_arguments() -> None:
    """Arguments replace the annotation of the calls."""
    (entry,) = recalled(facts(*called("So. " * 100, text="plan " * 30))).entries
    assert entry.join
    both = entry.join([0, 1])
    assert both.text.startswith(" Nexus: So. So.")
    assert "\n[tool_use:write" in both.text
    assert both.text.endswith('plan plan "}]')
    assert both.reasons == {}
    (entry,) = recalled(facts(*called("So. " * 200, text="plan " * 300))).entries
    assert entry.join
    assert len(entry.passages) == 6
    some = entry.join([1, 2, 3])
    assert some.text.startswith(" Nexus: ... So. So.")
    assert 'So.\n[tool_use:write {"text": "plan plan' in some.text
    assert some.text.endswith("plan ...]")
    assert some.reasons == {"b": "passages"}
    assert entry.join([3]).text.startswith(" Nexus: [tool_use:... plan")


@pytest.mark.parametrize("show", [shared_memory, native_history])
def test_what_a_search_found_is_only_recalled(show: Callable[[Facts], Block]) -> None:
    """Gaps are between what was found, so turns begin with what was said last."""
    times = [f"2023-05-21T23:3{n}:00Z" for n in range(6)]
    given = facts(*(row(f"m{n}", "human", f"said {n}", timestamp=t) for n, t in enumerate(times)))
    block = show(replace(given, found=4))

    assert [m.id for entry in block.entries for m in entry.messages] == ["m4", "m5"]
    older = [each.message_ids for each in block.omissions if each.reason == OLDER]
    assert [id_ for ids in older for id_ in ids] == ["m0", "m1", "m2", "m3"]
    assert len(recalled(replace(given, found=4)).entries) == 6
    # a call without a result gets a placeholder, which is no message of the history
    calling = replace(given.history[1], role=Role.AI, tool_calls=(ToolCall(id="c", name="f"),))
    unanswered = replace(given, history=(given.history[0], calling, *given.history[2:]))
    block = show(replace(unanswered, found=4))
    assert [m.id for entry in block.entries for m in entry.messages] == ["m4", "m5"]
    for other in (given, replace(given, found=0), replace(given, found=4, recalls=False)):
        assert not show(other).omissions
