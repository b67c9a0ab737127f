"""A conversation over a store."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from formatters.model import Row
from service.adapters.memory.store import MemoryHistory
from service.conversation.context_config import ContextConfig
from service.conversation.manager import ContextManager
from service.conversation.messages import SUMMARY, is_summary, with_mark
from service.conversation.sending import prepare
from service.conversation.stored import Conversation, merge, read_stored, to_stored
from service.errors import InvalidRequestError, MessageError, RowRefusedError, StoreError
from tests.support import NOW
from tests.unit.service.conversation.managing import (
    MOMENT,
    SIMPLE,
    Summariser,
    Waiting,
    contents,
    manager,
    numbered,
)
from tests.unit.service.conversation.talk import calls, function_call, parts, result, said

CALLS = [{"id": "c1", "name": "search", "arguments": {"q": "x"}}]


class Flaky(MemoryHistory):
    """Fails while a test sets it to, after it has stored its input."""

    def __init__(self) -> None:
        super().__init__(lambda: SIMPLE, lambda: NOW)
        self.fails = False

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Store rows, and say nothing of it."""
        added = await super().append(owner_key, messages, conversation_id=conversation_id)
        await asyncio.sleep(0)  # others have their turn, as with a real store
        if self.fails:
            raise StoreError("the connection broke")
        return added


def talk(
    store: MemoryHistory, context: ContextManager | None = None, **options: Any
) -> Conversation:
    """Return a conversation over a store."""
    return Conversation(store, "ann", "c1", manager=context or manager(), **options)


async def stored(store: MemoryHistory) -> list[Any]:
    """Return the texts in a store, oldest first."""
    return contents((await store.recent("ann", "c1")).rows)[::-1]


def here(conversation: Conversation) -> list[Any]:
    """Return the texts in memory."""
    return contents(conversation.manager.get_conversation_history("c1"))


def test_what_is_no_store_is_refused() -> None:
    """At once, not by the first flush."""
    with pytest.raises(TypeError, match=r"store has to be a history store, not 'x'$"):
        Conversation("x", "ann", "c1")  # type: ignore[arg-type] # as somebody may write it
    with pytest.raises(TypeError, match=r"; pass its history$"):
        Conversation(SimpleNamespace(history=None), "ann", "c1")


async def test_what_is_said_is_there_for_the_next_process() -> None:
    """Calls, results and names included."""
    store = Flaky()
    first = talk(store)
    first.add_user_message("Find x.", name="ann")
    first.add_assistant_message("", CALLS)
    first.add_tool_result(tool_call_id="c1", name="search", result="found")
    first.add_assistant_message("It is there.")
    sent = await first.build_messages()

    assert sent == await talk(store).build_messages()
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant"]
    assert sent[0]["name"] == "ann"
    (page,) = [row for row in await store.get_history("ann", 9) if row["role"] == "TOOL"]
    assert page["metadata"] == {"tool_call_id": "c1", "name": "search"}


async def test_what_could_not_be_stored_is_stored_later_and_once() -> None:
    """Even where it was, and the answer got lost."""
    store = Flaky()
    conversation = talk(store)
    conversation.add_user_message("a")
    store.fails = True
    with pytest.raises(StoreError):
        await conversation.flush()
    conversation.add_user_message("b")
    store.fails = False
    await conversation.flush()
    await conversation.flush()

    assert await stored(store) == here(conversation) == ["a", "b"]


async def test_two_tasks_on_one_conversation_lose_nothing() -> None:
    """Whether they share the object or the store alone."""
    store = Flaky()
    shared, other = talk(store), talk(store)

    async def say(conversation: Conversation, name: str) -> None:
        for number in range(10):
            conversation.add_user_message(f"{name}{number}")
            await conversation.build_messages()

    async with asyncio.TaskGroup() as tasks:
        for conversation, name in ((shared, "a"), (shared, "b"), (other, "c")):
            tasks.create_task(say(conversation, name))

    all_said = {f"{name}{number}" for name in "abc" for number in range(10)}
    await shared.load()
    await other.load()
    assert len(await stored(store)) == 30
    assert set(await stored(store)) == all_said
    for conversation in (shared, other):
        assert here(conversation) == await stored(store)


async def test_what_was_added_by_the_manager_is_stored_too() -> None:
    """It gets its id with the next flush."""
    store = Flaky()
    conversation = talk(store)
    conversation.manager.add_user_message("a", conversation_id="c1")
    conversation.manager.add_user_message("elsewhere", conversation_id="c2")
    await conversation.flush()

    assert await stored(store) == ["a"]


async def test_what_passes_itself_off_as_a_summary_is_stored() -> None:
    """Summaries alone are not, and no caller can mark one."""
    store = Flaky()
    conversation = talk(store)
    for mark in ({"written_by": "summary"}, {"written_by": "session"}):
        conversation.manager.add_user_message("a", conversation_id="c1", meta=mark)
    await conversation.flush()

    assert await stored(store) == ["a", "a"]


async def test_a_message_that_brings_an_id_is_stored_under_it() -> None:
    """Once, however often it is flushed or loaded."""
    store = Flaky()
    conversation = talk(store)
    message = {"id": "mine", "role": "user", "content": "a"}
    conversation.manager.add_message_dict(message, "c1")
    await conversation.flush()
    await conversation.load()
    await conversation.flush()

    assert await stored(store) == ["a"]
    assert [each["id"] for each in (await store.recent("ann", "c1")).rows] == ["mine"]


async def test_a_message_with_the_id_0_keeps_it() -> None:
    """Other stores number their messages; an empty id is none."""
    store = Flaky()
    conversation = talk(store)
    for id_ in (0, ""):
        message = {"id": id_, "role": "user", "content": "a"}
        conversation.manager.add_message_dict(message, "c1")
    await conversation.flush()

    made, first = [each["id"] for each in (await store.recent("ann", "c1")).rows]
    assert first == "0"
    assert str(made).startswith("msg_")


@pytest.mark.parametrize("added", [{"id": "x" * 300}, {"cost": float("nan")}, {"tags": {"a"}}])
async def test_a_message_that_the_store_refuses_is_left_out(added: Row) -> None:
    """The error names it, and all others are stored, in their order."""
    store = Flaky()
    conversation = talk(store)
    conversation.add_user_message("a")
    conversation.manager.add_message_dict({**said("user", "bad"), **added}, "c1")
    conversation.add_user_message("b")
    refused = r"the store refuses the message 'bad', which is left out: (id: a|cannot be w)"
    with pytest.raises(MessageError, match=refused):
        await conversation.build_messages()
    conversation.add_user_message("c")
    await conversation.build_messages()

    assert await stored(store) == here(conversation) == ["a", "b", "c"]


async def test_a_row_that_a_database_refuses_is_left_out() -> None:
    """But nothing is, if the store fails before all others are stored."""

    class Strict(Flaky):
        async def append(
            self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
        ) -> int:
            if "bad" in contents(messages):
                raise RowRefusedError("a constraint")
            return await super().append(owner_key, messages, conversation_id=conversation_id)

    store = Strict()
    conversation = talk(store)
    for text in ("bad", "a", "bad"):
        conversation.add_user_message(text)
    store.fails = True
    with pytest.raises(StoreError, match="the connection broke"):
        await conversation.flush()
    assert here(conversation) == ["bad", "a", "bad"]
    store.fails = False
    with pytest.raises(MessageError, match=r"(.*'bad', which is left out: a constraint){2}$"):
        await conversation.flush()
    assert await stored(store) == here(conversation) == ["a"]


async def test_no_message_is_left_out_for_its_owner() -> None:
    """An owner key that the store refuses is an error of the caller's, with every flush."""
    conversation = Conversation(Flaky(), "", "c1", manager=manager())
    conversation.add_user_message("a")
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match="/owner_key: "):
            await conversation.flush()
    assert here(conversation) == ["a"]


async def test_an_id_that_the_store_repairs_is_repaired_here() -> None:
    """The message was in memory twice."""
    store = Flaky()
    conversation = talk(store)
    conversation.manager.add_message_dict({**said("user", "a"), "id": "\ud83d"}, "c1")
    await conversation.load()

    assert await stored(store) == here(conversation) == ["a"]


@pytest.mark.parametrize("flushed", [True, False])
async def test_of_two_messages_with_one_id_both_stay(flushed: bool) -> None:
    """The second gets an id of its own; one that says the same is the same message."""
    store = Flaky()
    conversation = talk(store)
    for message in (said("user", "a"), said("assistant", "b"), said("user", "a")):
        conversation.manager.add_message_dict({**message, "id": "x"}, "c1")
        if flushed:
            await conversation.flush()
    await conversation.load()

    assert await stored(store) == here(conversation) == ["a", "b"]
    assert [row["id"] for row in conversation.manager.rows("c1")].count("x") == 1


async def test_what_is_pruned_in_the_store_goes() -> None:
    """Whoever said it, the others keep their order, and what is restored comes back."""
    store = Flaky()
    conversation, other = talk(store), talk(store)
    for number in range(3):
        conversation.add_user_message(f"{number}")
    await conversation.flush()
    await other.load()
    pruned = [str(row["id"]) for row in other.manager.rows("c1")][:2]
    await store.prune("ann", pruned)
    conversation.add_user_message("3")
    for each in (conversation, other):
        await each.load()
        assert here(each) == ["2", "3"]
    await store.restore("ann", pruned[1:])
    await other.load()
    assert here(other) == ["1", "2", "3"]


async def test_what_is_erased_in_the_store_goes() -> None:
    """Only what isn't stored yet is left."""
    store = Flaky()
    conversation = talk(store)
    conversation.add_user_message("a")
    await conversation.flush()
    await store.erase("ann")
    conversation.add_user_message("b")
    await conversation.load()
    assert here(conversation) == ["b"]
    await store.erase("ann")
    assert await conversation.build_messages() == []


async def test_what_is_older_than_the_page_goes_only_if_it_is_pruned() -> None:
    """The newest rows may be others', and fill the page."""
    store = Flaky()
    conversation, other = talk(store, max_rows=2), talk(store)
    for number in range(4):
        conversation.add_user_message(f"{number}")
        await conversation.flush()
    await store.prune("ann", [str(conversation.manager.rows("c1")[1]["id"])])
    await conversation.load()
    assert here(conversation) == ["0", "2", "3"]
    for text in ("4", "5"):
        other.add_user_message(text)
    await other.flush()
    await conversation.load()
    assert here(conversation) == ["0", "2", "3", "4", "5"]


async def test_only_the_newest_rows_are_taken_in() -> None:
    """Of a long history."""
    store = Flaky()
    first = talk(store)
    for number in range(5):
        first.add_user_message(f"{number}")
    await first.flush()
    second = talk(store, max_rows=2)
    await second.load()

    assert here(second) == ["3", "4"]
    ids = [[row["id"] for row in each.manager.rows("c1")] for each in (first, second)]
    assert ids[1] == ids[0][-2:]


def long(store: MemoryHistory) -> Conversation:
    """Return a conversation that is worth a summary."""
    conversation = talk(store, manager(ContextConfig(max_tokens=1000, reserve_tokens=0)))
    for number in range(40):
        conversation.add_user_message(numbered(number))
    return conversation


async def test_a_summary_stays_in_memory() -> None:
    """The store keeps what was said, and what was summarised does not come back."""
    store = Flaky()
    conversation = long(store)
    made = await conversation.compact(Summariser(), force=True)
    assert made is not None
    assert made.committed
    conversation.add_user_message("Next.")
    messages = await conversation.build_messages()

    assert len(messages) == 1 + 19 + 1
    assert is_summary(conversation.manager.get_conversation_history("c1")[0])
    assert len(await stored(store)) == 41
    assert not any("CONTEXT SUMMARY" in text for text in await stored(store))


async def test_what_others_say_meanwhile_stays() -> None:
    """Theirs comes in with the next load, after the preserved messages."""
    store = Flaky()
    conversation, other, summariser = long(store), talk(store), Waiting()
    task = asyncio.create_task(conversation.compact(summariser, force=True))
    await summariser.asked.wait()
    await other.load()
    other.add_user_message("From elsewhere.")
    await other.flush()
    conversation.add_user_message("From here.")
    await conversation.flush()
    summariser.go.set()
    made = await task
    await conversation.load()

    assert made is not None
    assert made.committed
    assert here(conversation)[-2:] == ["From elsewhere.", "From here."]


async def test_what_is_forgotten_here_was_stored_before() -> None:
    """A conversation that holds no more than the model sees loses nothing either."""
    store = Flaky()
    conversation = talk(store, manager(available=70, sync_history=True))
    for number in range(10):
        conversation.add_user_message(numbered(number))
    messages = await conversation.build_messages()
    await conversation.load()

    assert len(await stored(store)) == 10
    assert len(here(conversation)) == len(messages) < 10


def row(id_: str) -> Row:
    """Return a row of a store."""
    return {"id": id_, "role": "HUMAN", "content": id_}


def ids(rows: list[Row]) -> str:
    """Return the ids of rows, "-" for none."""
    return " ".join(str(each.get("id", "-")) for each in rows)


def test_a_message_becomes_a_row() -> None:
    """What has no field of its with_mark goes into the metadata, next to what is there."""
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
    """Summarised rows don't come back next to their summary."""
    summary: Any = with_mark(said("user", "s"), SUMMARY)

    assert ids(merge([summary, row("c")], [row("a"), row("c"), row("d")], {"a", "c"})) == "- c d"


def test_what_is_not_in_the_page_has_its_place() -> None:
    """Older than it before, not stored yet behind."""
    here = [row("a"), row("b"), row("new")]

    assert ids(merge(here, [row("b"), row("c")], {"a", "b"})) == "a b c new"
    assert ids(merge([row("new")], [row("a")], set())) == "a new"


def test_a_summary_keeps_its_place() -> None:
    """After the question that precedes it, even if others stored messages."""
    summary: Any = with_mark(said("user", "s"), SUMMARY)
    here = [row("q"), summary, row("c"), row("new")]

    merged = merge(here, [row("q"), row("b"), row("c"), row("d")], {"q", "c"})
    assert ids(merged) == "q - b c d new"
