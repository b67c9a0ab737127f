"""Callers' messages as units, and as messages again."""

import copy
from collections.abc import Sequence
from functools import partial

import pytest

from formatters.model import Row
from formatters.native import CLEARED
from formatters.repair.matching import CANCELLED
from service.budget.estimates import SimpleTokenCounter
from service.budget.groups import Strategy
from service.budget.strategies.middle_out import MiddleOut
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategies.tool_result_clearing import ToolResultClearing
from service.conversation.sending import row_tokens
from service.conversation.units import Item, can_be_cleared, read_units, repair_items
from tests.support import row
from tests.unit.service.conversation.talk import (
    EXAMPLE,
    Said,
    calls,
    function_call,
    parts,
    response,
    result,
    results,
    said,
    uses,
)

HI = said("user", "hi")


BYE = said("user", "bye")


def price(_row: object) -> int:
    """Let every message cost 10 tokens."""
    return 10


def mended(history: list[Said]) -> list[Said]:
    """Return all of a history as it comes back; what is given is not changed."""
    before = copy.deepcopy(history)
    units = read_units(history)
    left = [dict(each) for each in units.rows(units.groups(price))]
    assert history == before
    assert units.all_rows() == left
    return left


def sizes(history: list[Said]) -> list[int]:
    """Return how many messages each group has."""
    return [group.size for group in read_units(history).groups(price)]


VALID: dict[str, Sequence[Row]] = {
    "chat": EXAMPLE,
    "rows": [
        row(1, "HUMAN", "hi"),
        row(2, "AI", "", metadata={"tool_calls": [{"id": "c", "name": "f", "arguments": {}}]}),
        row(3, "TOOL", "found", metadata={"tool_call_id": "c"}),
        row(4, "system", "Be brief"),
    ],
    "blocks": [HI, uses("1", "2"), results("1", "2", text="so?"), said("assistant", "so")],
    "parts": [
        parts("user", "hi"),
        parts("model", "well", function_call(), function_call()),
        parts("user", response(), response(), "so?"),
    ],
    "waiting": [HI, calls("1", "2"), result("1")],
    "opaque": [
        {"role": "assistant", "content": None, "refusal": "No"},
        said("user", [{"type": "input_audio", "input_audio": {}}]),
        said("assistant", [{"type": "thinking", "thinking": "", "signature": "s"}]),
        said("assistant", [*said("", [{"type": "thinking"}])["content"], *uses("1")["content"]]),
        results("1", content=[{"type": "document", "source": {}}]),
        parts("model", function_call(thought=1), {"inlineData": {}}),
        parts("user", response()),
        {**said("assistant", ""), "provider_parts": [{"signed": 1}]},
    ],
}


@pytest.mark.parametrize("shape", VALID)
def test_what_is_valid_comes_back_as_the_same_objects(shape: str) -> None:
    """In their order, whatever their shape."""
    history = VALID[shape]
    units = read_units(history)
    left = units.rows(units.groups(price))

    assert len(left) == len(history)
    assert all(each is given for each, given in zip(left, history, strict=True))


def test_groups_are_atomic_units() -> None:
    """[U], [A, T, T], [A]; a message of parts that holds more than results is in the call's."""
    assert sizes([HI, calls("1", "2"), result("1"), result("2"), said("assistant", "a")]) == [
        1,
        3,
        1,
    ]
    assert sizes(EXAMPLE) == [1, 2, 1, 2, 1, 1]
    assert sizes([HI, uses("1", "2"), results("1", "2"), BYE]) == [1, 2, 1]
    assert sizes([HI, uses("1"), results("1", text="so?"), said("assistant", "a")]) == [1, 2, 1]
    assert sizes([said("system", "s"), HI, said("command", "c")]) == [1, 1]


def test_groups_cost_what_their_messages_cost() -> None:
    """And what clearing a result saves is known for each."""
    units = read_units(EXAMPLE)
    groups = units.groups(lambda row: len(str(row["content"])))

    assert [group.tokens for group in groups] == [2, 5, 2, 5, 2, 2]
    assert groups[1].savings == {"2": len("found") - len(CLEARED)}


def test_strategies_of_tokens_act_on_units() -> None:
    """NEXUS3's examples: a pair is never split, and ten messages of 13 tokens end where they do."""
    counter = SimpleTokenCounter()

    def kept(strategy: Strategy, history: list[Said], budget: int) -> list[int]:
        units = read_units(history)
        groups = units.groups(lambda row: counter.count_messages([row]))
        return [history.index(dict(row)) for row in units.rows(strategy.fit(groups, budget).kept)]

    pair = [said("user", "x" * 40), calls("1"), result("1", "x" * 200)]
    ten = [said("user", f"{n:02}" + "x" * 34) for n in range(10)]

    assert kept(OldestFirst(), pair, 40) == [1, 2]
    assert kept(OldestFirst(), ten, 52) == [6, 7, 8, 9]
    assert kept(OldestFirst(), ten, 65) == [5, 6, 7, 8, 9]
    assert kept(OldestFirst(), ten, 0) == [9]
    assert kept(MiddleOut(), ten, 65) == [0, 6, 7, 8, 9]
    assert kept(MiddleOut(), ten, 12) == [0, 9]
    assert kept(MiddleOut(), ten[:2], 0) == [0, 1]


def test_the_newest_message_of_the_user_is_pinned() -> None:
    """Or the unit that it is part of; system messages are no groups."""
    assert [group.pinned for group in read_units(EXAMPLE).groups(price)] == [
        *[False] * 4,
        True,
        False,
    ]
    mixed = read_units([HI, uses("1"), results("1", text="so?")])
    assert [group.pinned for group in mixed.groups(price)] == [False, True]
    assert not any(group.pinned for group in read_units([said("assistant", "a")]).groups(price))


def test_a_call_without_a_result_gets_one_in_its_shape() -> None:
    """A chat message, a row, or a user's message of blocks or parts."""
    stored = row(2, "AI", "", metadata={"tool_calls": [{"id": "c", "name": "f", "arguments": {}}]})

    assert mended([calls("1"), HI]) == [calls("1"), result("1", CANCELLED), HI]
    assert mended([dict(stored), HI])[1] == {
        "id": "result_of_c",
        "run_id": "r2",
        "role": "TOOL",
        "content": CANCELLED,
        "timestamp": stored["timestamp"],
        "metadata": {"tool_call_id": "c", "name": "f"},
    }
    assert mended([uses("1"), HI]) == [uses("1"), results("1", content=CANCELLED), HI]
    answer = {"name": "search", "response": {"result": CANCELLED}}
    assert mended([parts("model", function_call()), HI])[1] == parts(
        "user", {"functionResponse": answer}
    )
    assert mended([parts("model", function_call(id="9")), HI])[1] == parts(
        "user", {"functionResponse": {**answer, "id": "9"}}
    )


def test_a_call_at_the_very_end_waits() -> None:
    """Its result may come yet, and would be the second one then; a text behind it ends that."""
    assert mended([HI, calls("1", "2"), result("2")]) == [HI, calls("1", "2"), result("2")]
    assert mended([uses("1")]) == [uses("1")]
    assert len(mended([calls("1"), said("assistant", "well")])) == 3


def test_an_instruction_behind_a_call_ends_its_waiting() -> None:
    """The placeholder stands directly behind the call, or behind the results that came."""
    rule, made = said("system", "Be brief"), result("2", CANCELLED)
    asked, given = calls("1", "2"), result("1")

    assert mended([HI, calls("2"), rule]) == [HI, calls("2"), made, rule]
    assert mended([asked, given, rule]) == [asked, given, made, rule]
    assert mended([asked, rule, given]) == [asked, given, made, rule]
    assert mended([uses("2"), said("developer", "Be brief")])[1] == results("2", content=CANCELLED)
    assert mended([rule, HI, calls("2")]) == [rule, HI, calls("2")]
    assert mended([rule, HI, result("1"), calls("2")]) == [rule, HI, calls("2")]


def test_results_without_a_call_go() -> None:
    """Of a message that holds more than that, the rest stays."""
    assert mended([HI, result("1"), BYE]) == [HI, BYE]
    assert mended([HI, results("1", text="so?")]) == [HI, results(text="so?")]
    assert mended([HI, results("1")]) == [HI]
    assert mended([parts("user", response(), "so?")]) == [parts("user", "so?")]


def test_a_response_of_another_function_answers_no_call() -> None:
    """Gemini's refer to their calls by names; the call gets a placeholder."""
    made = {"functionResponse": {"name": "search", "response": {"result": CANCELLED}}}
    asked = parts("model", function_call("search"))

    assert mended([asked, parts("user", response("book")), HI]) == [asked, parts("user", made), HI]


def test_results_stand_behind_their_call() -> None:
    """In the order of the calls; a message that held others too is taken apart."""
    assert mended([calls("1", "2"), HI, result("2"), result("1")]) == [
        calls("1", "2"),
        result("1"),
        result("2"),
        HI,
    ]
    assert mended([uses("1"), HI, results("1", text="so?")]) == [
        uses("1"),
        results("1"),
        HI,
        results(text="so?"),
    ]


def test_a_result_takes_the_place_of_its_placeholder() -> None:
    """As in a context that was stored; of two placeholders the first one stays."""
    made = {"functionResponse": {"name": "search", "response": {"result": CANCELLED}}}
    asked = parts("model", function_call("search"))

    for answer in (BYE, said("assistant", "bye")):
        chat = [calls("1"), result("1", CANCELLED), answer]
        assert mended([*chat, result("1")]) == [calls("1"), result("1"), answer]
        assert mended([*chat, result("1", CANCELLED)]) == chat
    blocks = [uses("1"), results("1", content=CANCELLED), HI, results("1")]
    assert mended(blocks) == [uses("1"), results("1"), HI]
    stored = [asked, parts("user", made), HI, parts("user", response())]
    assert mended(stored) == [asked, parts("user", response()), HI]


def test_results_that_change_stand_in_one_message_where_they_can() -> None:
    """As providers of blocks want them; such as came in several and are right stay apart."""
    apart = [uses("1", "2"), results("1"), results("2", text="so?")]
    lost = [uses("1", "2", "3"), results("2"), results("3", text="so?")]
    made = [*results("1", content=CANCELLED)["content"], *results("2", "3", text="so?")["content"]]

    assert mended(apart) == apart
    assert mended(lost) == [lost[0], said("user", made)]
    assert sizes(apart) == [3]
    assert sizes(lost) == [2]
    chat = [calls("1", "2"), result("1")]
    assert mended([*chat, HI]) == [*chat, result("2", CANCELLED), HI]
    assert mended([uses("1", "2"), result("1"), HI]) == [
        uses("1", "2"),
        result("1"),
        results("2", content=CANCELLED),
        HI,
    ]


def test_an_id_that_was_used_before_is_replaced() -> None:
    """With that of its result, and the rest of both stays as it was."""
    image = [{"type": "image", "source": {}}]
    first, answer, again, same = mended(
        [uses("1"), results("1"), uses("1"), results("1", content=image)]
    )
    new = again["content"][0]["id"]

    assert (first, answer) == (uses("1"), results("1"))
    assert new != "1"
    assert (again, same) == (uses(new), results(new, content=image))

    *_, again, same = mended([calls("1"), result("1"), calls("1"), result("1")])
    new = again["tool_calls"][0]["id"]
    assert (again, same) == (calls(new), result(new))

    asked, answered = parts("model", function_call(id="1")), parts("user", response(id="1"))
    *_, again, same = mended([asked, answered, asked, answered])
    new = again["parts"][0]["functionCall"]["id"]
    assert (again, same) == (parts("model", function_call(id=new)), parts("user", response(id=new)))


def test_messages_of_other_roles_stay_between_units() -> None:
    """Never between a call and its result; of these, system messages are never dropped."""
    rule, odd = said("system", "Be brief"), said("command", "/stop")
    history = [calls("1"), rule, odd, result("1"), HI]

    assert mended(history) == [calls("1"), result("1"), rule, odd, HI]
    assert read_units(history).rows(()) == [rule]
    assert read_units(history).instructions_first().rows(()) == [rule]


def test_results_can_be_cleared() -> None:
    """By the ids of the groups' messages; the same object where there is nothing to clear."""
    history = [calls("1"), result("1"), uses("2"), results("2"), said("assistant", "a")]
    units = read_units(history)
    groups = [group.without_results(list(group.savings)) for group in units.groups(price)]
    left = units.rows(groups)

    assert left[1] == result("1", CLEARED)
    assert left[3] == results("2", content=CLEARED)
    assert left[4] is history[4]

    again = read_units(left)
    same = again.rows([g.without_results(list(g.savings)) for g in again.groups(price)])
    assert all(each is before for each, before in zip(same, left, strict=True))


def test_results_are_read_in_the_order_of_their_message() -> None:
    """Whatever the order of the calls, so that the oldest are cleared first."""
    history = [uses("1", "2", "3"), results("3", "1", "2"), HI]
    groups = ToolResultClearing(keep_recent_n=1).fit(read_units(history).groups(price), 0).kept
    blocks = read_units(history).rows(groups)[1]["content"]

    assert isinstance(blocks, list)
    assert [block["content"] for block in blocks] == [CLEARED, CLEARED, "found"]


@pytest.mark.parametrize("shape", ["blocks", "parts"])
def test_many_results_of_one_message_are_each_counted_once(shape: str) -> None:
    """As it is and cleared, so that hundreds take no minutes."""
    ids = [str(number) for number in range(100)]
    rows = [uses(*ids), results(*ids, content="found it")]
    if shape == "parts":
        rows = [
            parts("model", *[function_call(id=id_) for id_ in ids]),
            parts("user", *[response(id=id_) for id_ in ids]),
        ]
    counted = 0

    def count(text: str) -> int:
        nonlocal counted
        counted += 1
        return len(text)

    (group,) = read_units(rows).groups(partial(row_tokens, count=count))
    counted = 0
    assert len(set(group.savings.values())) == 1
    assert counted <= 2 * 100


def test_a_made_up_result_can_be_cleared() -> None:
    """So that clearing twice is clearing once."""
    units = read_units([uses("1"), HI])
    groups = [group.without_results(list(group.savings)) for group in units.groups(price)]

    assert units.rows(groups) == [uses("1"), results("1", content=CLEARED), HI]


def test_what_is_for_a_provider_is_not_cleared() -> None:
    """It goes whole or not at all."""
    opaque = {**result("1"), "provider_parts": {"signed": 1}}

    assert read_units([calls("1"), opaque]).groups(price)[0].savings == {}


def test_messages_that_say_nothing_go() -> None:
    """No API takes them; a result may be empty, and then says so."""
    assert mended([HI, said("assistant", " "), parts("model")]) == [HI]
    assert mended([calls("1"), result("1", "")])[1]["content"].startswith("(")


def test_instructions_that_say_nothing_go() -> None:
    """In each shape, and a call before one still waits; what only a provider can read stays."""
    empty = [said("system", ""), said("developer", None), said("system", [{"text": " "}])]
    shown = said("system", [{"type": "input_audio", "input_audio": {}}])

    assert mended([*empty, parts("system", {"text": ""}), HI, shown]) == [HI, shown]
    assert mended([HI, calls("1"), *empty]) == [HI, calls("1")]


def given(*messages: Said) -> list[Item]:
    """Return messages as they came."""
    return [Item.read(row, n) for n, row in enumerate(messages)]


def test_a_message_is_named_by_its_place() -> None:
    """And so is all that is read from it."""
    (first, second) = given(said("user", "hi"), results("1", text="so?"))

    assert [message.id for message in (*first.messages, *second.messages)] == ["0", "1/0", "1"]
    assert first.is_dialogue
    assert not given(said("system", "Be brief"))[0].is_dialogue


def test_all_of_a_message_is_the_message_itself() -> None:
    """What is less or other than that is written again."""
    (both,) = given(results("1", text="so?"))

    assert both.with_messages(both.messages) is both
    assert both.is_unchanged
    assert both.with_messages(both.messages[1:]).row == results(text="so?")
    assert not both.with_messages(both.messages[1:]).is_unchanged


def test_results_are_cleared_by_their_ids() -> None:
    """Others aren't, and a text never is."""
    (both,) = given(results("1", "2", text="so?"))

    assert [can_be_cleared(message) for message in both.messages] == [True, True, False]
    assert both.clear_results(["0", "9"]) == both
    cleared = both.clear_results(["0/1"])
    assert [message.content for message in cleared.messages] == ["found", CLEARED, "so?"]
    assert cleared.clear_results(["0/1"]).row == cleared.row


def test_what_is_said_is_mended_message_by_message() -> None:
    """A generated message has no position, and no author."""
    history = given(calls("1"), said("user", "hi"), uses("2"), results("2"), result("9"))
    items = list(repair_items(history))

    assert [set(item.indexes) for item in items] == [{0}, set(), {1}, {2}, {3}]
    assert [item.is_unchanged for item in items] == [True, False, True, True, True]
    assert items[1].row["tool_call_id"] == "1"
