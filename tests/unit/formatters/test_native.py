import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from formatters.guard import Guard
from formatters.handles import make_handle
from formatters.model import (
    ChatMessage,
    Facts,
    MemoryView,
    Message,
    PreviewLimit,
    Role,
    ToolCall,
    TrimPolicy,
)
from formatters.native import (
    CLEARED,
    WORDLESS,
    clear_result,
    native_history,
    run_so_far,
    to_chat_message,
    truncate_message,
)
from formatters.rows import read_row, read_rows

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
    """A message, or a call with its results in the order of the calls."""
    block = native_history(facts(TALK))

    assert block.tag == "HISTORY"
    assert block.native
    assert block.gives_way is TrimPolicy.BY_STRATEGY
    assert [[m.content for m in entry.native] for entry in block.entries] == [
        ["q0"],
        ["", "r1", "r2"],
        ["a4"],
        ["[THIS_MOMENT]"],
    ]
    assert [[m.id for m in entry.messages] for entry in block.entries] == [
        ["m0"],
        ["m1", "m3", "m2"],
        ["m4"],
        ["m6"],
    ]
    assert [entry.rows for entry in block.entries] == [1, 3, 1, 1]
    assert block.entries[1].results == {"m3": 1, "m2": 2}
    assert block.entries[1].reasons == {"m3": "result_moved"}
    assert [(each.message_ids, each.reason) for each in block.omissions] == [(("m5",), "role")]
    assert not block.volatile


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        (None, ["q0", "", "a4", "[THIS_MOMENT]"]),
        (6, ["q0", "", "a4", "[THIS_MOMENT]"]),
        (5, ["", "a4", "[THIS_MOMENT]"]),
        (4, ["a4", "[THIS_MOMENT]"]),
        (1, ["[THIS_MOMENT]"]),
        (0, []),
    ],
)
def test_the_limit_counts_messages(limit: int | None, kept: list[str]) -> None:
    """A unit goes in whole or not at all, and none is added after it."""
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
    assert entry.reasons == {"m0": "result_missing"}


def test_made_up_results_are_never_shortened() -> None:
    """They aren't anybody's words, so that no decision would say that they were cut."""
    talk = rows(("user", "x" * 20, None), ("ai", "x" * 20, calls("c1")))
    (_, entry) = native_history(facts(talk)).entries
    assert entry.longest == 20
    assert entry.shorten

    short = entry.shorten(10)

    assert short.native[0].content == "xxxxxxx..."
    assert short.native[1] == entry.native[1]
    assert short.reasons == {"m1": "shortened"}


def test_the_run_follows_as_it_came() -> None:
    """In the order given, pending calls included."""
    run = rows(
        ("ai", "", calls("c1")), ("tool", "r", {"tool_call_id": "c1"}), ("ai", "", calls("c2"))
    )
    block = run_so_far(facts(run=run))

    assert block.tag == "RUN"
    assert block.native
    assert block.gives_way is TrimPolicy.ALL_BUT_NEWEST
    assert block.volatile
    assert [entry.reasons for entry in block.entries] == [{}, {"m2": "result_pending"}]


def test_what_a_run_leaves_out_is_reported() -> None:
    """As of history."""
    block = run_so_far(facts(run=rows(("system", "obey", None), ("ai", "a", None))))

    assert [(each.message_ids, each.reason) for each in block.omissions] == [(("m0",), "role")]


def test_no_run_is_no_block() -> None:
    """Where nothing has come of the input yet."""
    assert run_so_far(facts()).entries == ()


@pytest.mark.parametrize("parts", [None, ["signed"]])
def test_calls_of_history_and_run_have_ids_of_their_own(parts: object) -> None:
    """History keeps its own, so that it stays the same, but not against what is passed on."""
    called = {**calls("c1"), "provider_parts": parts}
    both = facts(rows(("ai", "", calls("c1"))), run=rows(("ai", "", called)))
    history = native_history(both)
    run = run_so_far(both, history)
    ids = [block.entries[0].native[0].tool_calls[0].id for block in (history, run)]

    assert ids.index("c1") == (0 if parts is None else 1)
    assert len(set(ids)) == 2


PARTS = {"thinking": ["signed", {"n": 0}]}

CALL = ToolCall(id="c1", name="find_key", arguments={"q": "[RUN]"}, text='{"q":"[RUN]"}')
ASKED = Message(id="u", role=Role.HUMAN, content="Where is the key?")
CALLED = Message(id="a", role=Role.AI, content="", tool_calls=(CALL,), provider_parts=PARTS)
FOUND = Message(id="t", role=Role.TOOL, content="Under the pot.", tool_call_id="c1", name="f")


@pytest.mark.parametrize(
    ("message", "sent"),
    [
        (ASKED, {"role": "user", "content": "Where is the key?"}),
        (
            CALLED,
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "find_key", "arguments": '{"q":"[RUN]"}'},
                    }
                ],
                "provider_parts": PARTS,
            },
        ),
        (FOUND, {"role": "tool", "content": "Under the pot.", "tool_call_id": "c1"}),
    ],
)
def test_what_is_sent(message: Message, sent: dict[str, object]) -> None:
    """A message is sent in OpenAI's chat form, its keys always in one order."""
    assert json.dumps(to_chat_message(message).as_dict()) == json.dumps(sent)


def test_what_is_sent_can_be_read_again() -> None:
    """A row in the form in which messages are sent is the same message."""
    for message in (ASKED, CALLED, FOUND):
        row = read_row(to_chat_message(message).as_dict(), fallback_id=message.id)
        assert row == replace(message, name=None)


def test_parts_for_the_provider_go_through() -> None:
    """They are the same object, not one that is equal."""
    assert to_chat_message(CALLED).as_dict()["provider_parts"] is PARTS


@pytest.mark.parametrize("role", [Role.HUMAN, Role.AI, Role.TOOL])
def test_only_special_tokens_are_changed(role: Role) -> None:
    """A message has no gutter: an agent that edits a file by exact match needs it as it is."""
    text = "[MOOD]\r\n| x\n<|im_start|>\ufeff\n"
    message = Message(id="m", role=role, content=text)

    assert to_chat_message(message).content == text.replace("<|", "<\\|")
    assert to_chat_message(message, Guard(None)).content == text


def test_blank_content() -> None:
    """An answer that only calls tools has no text, not blanks."""
    assert to_chat_message(replace(CALLED, content=" \n")).content == ""


def test_clearing() -> None:
    """A cleared result still answers its call."""
    assert clear_result(to_chat_message(FOUND)) == ChatMessage(
        role="tool", content=CLEARED, tool_call_id="c1"
    )


@pytest.mark.parametrize("message", [ASKED, CALLED, replace(FOUND, provider_parts=PARTS)])
def test_what_is_not_cleared(message: Message) -> None:
    """Only tool results are cleared, and none whose parts might say the same."""
    assert clear_result(to_chat_message(message)) == to_chat_message(message)


@pytest.mark.parametrize(("chars", "content"), [(99, "Under the pot."), (8, "Under..."), (0, ".")])
def test_shortening(chars: int, content: str) -> None:
    """Content is cut to a number of characters, but never to nothing."""
    assert truncate_message(FOUND, chars) == replace(FOUND, content=content)


def test_parts_for_the_provider_are_not_shortened() -> None:
    """A message with parts for its provider stays whole."""
    message = replace(FOUND, provider_parts=[])

    assert truncate_message(message, 3) is message


def test_a_message_of_parts_alone_has_words() -> None:
    """APIs refuse empty content, so a message that only its provider can read says that much."""
    thought = replace(CALLED, tool_calls=())

    assert to_chat_message(thought).content == WORDLESS
    assert to_chat_message(thought).provider_parts is PARTS
    assert to_chat_message(CALLED).content == ""


def test_arguments_are_guarded() -> None:
    """Special tokens in them are broken, as a program that decodes them gets them."""
    call = ToolCall(id="c1", name="f", text='{"q": "<|im_start|>system"}')

    (sent,) = to_chat_message(replace(CALLED, tool_calls=(call,))).tool_calls

    assert sent.text == '{"q": "<\\\\|im_start|>system"}'


def words(text: str) -> int:
    """Count words."""
    return len(text.split())


LONG = rows(
    ("ai", "", calls("c1", "c2")),
    ("tool", "line\n" * 100, {"tool_call_id": "c1"}),
    ("tool", "short", {"tool_call_id": "c2"}),
    ("user", "human " * 100, None),
)


@pytest.mark.parametrize("in_run", [False, True])
def test_long_results_are_previewed(in_run: bool) -> None:
    """In history and in the run, within their unit; nothing else is."""
    given = {"run" if in_run else "history": LONG}
    options: dict[str, Any] = {"offload": PreviewLimit(30, words), "recall_tool": True, **given}
    limited = facts(memory=MemoryView(limit=None), **options)
    block = (run_so_far if in_run else native_history)(limited)
    unit, other = block.entries

    assert [message.role for message in unit.native] == ["assistant", "tool", "tool"]
    assert f"recall id {make_handle('m1')}]\nline" in unit.native[1].content
    assert words(unit.native[1].content) <= 30
    assert unit.native[2].content == "short"
    assert other.native[0].content == LONG[3].content
    assert unit.reasons == {"m1": "offloaded"}
    assert unit.shorten
    assert unit.shorten(20).reasons == {"m1": "shortened"}


def test_results_with_provider_parts_are_never_previewed() -> None:
    """They may repeat the content."""
    given = (LONG[0], replace(LONG[1], provider_parts=["x"]), LONG[2])
    block = native_history(facts(given, offload=PreviewLimit(30, words)))
    assert block.entries[0].native[1].content == LONG[1].content


def test_a_cleared_result_can_be_recalled() -> None:
    """Where the model has the tool for it; its handle isn't sent otherwise."""
    (plain, _), (reported, _) = (
        native_history(facts(LONG, recall_tool=tool)).entries for tool in (False, True)
    )
    assert [message.as_dict() for message in plain.native] == [
        message.as_dict() for message in reported.native
    ]
    assert clear_result(plain.native[1]).content == CLEARED
    assert clear_result(reported.native[1]).content == (
        f"[tool result cleared; recall id {make_handle('m1')}]"
    )


def test_a_missing_result_has_no_handle() -> None:
    """There is nothing to recall."""
    (unit,) = run_so_far(facts(run=LONG[:1], recall_tool=True)).entries
    assert {message.handle for message in unit.native} == {None}
