from collections import UserList
from dataclasses import replace

import pytest

from formatters.model import (
    COUNT_MARK,
    Block,
    ChatMessage,
    Count,
    Entry,
    ToolCall,
    join_blocks,
    render,
)
from formatters.native import CLEARED
from service.budget.counting import (
    MESSAGE_OVERHEAD,
    AnyMessage,
    Estimate,
    block_tokens,
    count_function,
    entry_tokens,
    last_tokens,
    make_groups,
    measure,
    message_tokens,
    messages_tokens,
    part_texts,
)
from service.budget.estimates import HeuristicTokenCounter
from tests.unit.service.budget.natives import called, history


def block(*texts: str, additive: bool = True) -> Block:
    """Return a block with these entries."""
    return Block(
        tag="B",
        header=f"[B {COUNT_MARK}]\nSome lines:\n\n",
        entries=tuple(Entry(text=text, rows=1) for text in texts),
        placeholder="(nothing)",
        additive=additive,
    )


@pytest.mark.parametrize("additive", [True, False])
@pytest.mark.parametrize(
    "texts",
    [
        (),
        ("[2025-12-10 15:30] Human: Hello",),
        ("[Unknown time] Human: 你好 👋🏽\n\n", "[Unknown time] Nexus: \r\n/x\r", "### f\n/\n"),
        ("### a\n   ", "### b\n\t\n\n", "- c /", "[x] //\n/"),
    ],
)
def test_pieces_add_up(texts: tuple[str, ...], count: Count, *, additive: bool) -> None:
    """A block counted piece by piece has the tokens of its text, and the message's four."""
    whole = block(*texts, additive=additive)

    assert block_tokens(whole, count) == count(whole.text) + MESSAGE_OVERHEAD


def test_the_overhead() -> None:
    """A message costs four tokens by itself."""
    assert MESSAGE_OVERHEAD == 4


def test_entries_are_counted_once() -> None:
    """Of an additive block no text is counted but its pieces."""
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    whole = block("[a]", "[b]")
    tokens = [block_tokens(whole, count), block_tokens(whole, count)]

    header = "[B count=2]\nSome lines:\n\n"
    assert sorted(counted) == [header, header, "[a]", "[a]\n", "[b]", "[b]"]
    assert tokens == [len(f"{header}[a]\n[b]") + 4] * 2
    assert entry_tokens(Entry(text="[a]"), len) == 4


def test_another_counter_counts_again() -> None:
    """What an entry costs is kept for the newest counter; equal ones are the same."""
    counter, entry = HeuristicTokenCounter(), Entry(text="[ab]")

    assert [entry_tokens(entry, each) for each in (len, counter, counter.count, len)] == [
        5,
        2,
        2,
        5,
    ]


def test_blocks_that_share_a_message(count: Count) -> None:
    """Each has what the text up to its end counts more than the text up to its start."""
    first, second, third = (
        Block(tag="A", entries=(Entry(text="You are Nexus.\n"),)),
        Block(tag="C", header="[C]\n", entries=(Entry(text="### f\n/x\n"), Entry(text="### g"))),
        Block(tag="D", header="[D]\n", entries=(Entry(text="  你好  "),)),
    )
    shared = join_blocks((first, replace(second, additive=True), third))
    (message,) = render(shared)
    text = str(message["content"])
    ends = [text.index("\n\n[C]"), text.index("\n\n[D]"), len(text)]
    upto = [count(text[:end]) for end in ends]

    assert measure(shared, count) == {
        "A": upto[0] + 4,
        "C": upto[1] - upto[0],
        "D": upto[2] - upto[1],
    }


def test_native_messages() -> None:
    """Content, and name and arguments of each call, are counted by themselves, and four."""
    call = ToolCall(id="c1", name="search", arguments={}, text='{"q":1}')
    message = ChatMessage(role="assistant", content="Hm.", tool_calls=(call, call))
    entry = Entry(text="", native=(message, ChatMessage(role="tool", content="ok")))
    block = Block(tag="RUN", native=True, entries=(entry, entry))

    assert message_tokens(message, len) == 3 + 2 * (6 + 7) + 4
    assert entry_tokens(entry, len) == last_tokens(entry, len) == 33 + 6
    assert measure((block, Block(tag="E", native=True, entries=())), len) == {"RUN": 78, "E": 0}


def test_provider_parts_count_what_they_do_not_repeat() -> None:
    """They have content and calls again, or are sent in addition to them."""
    call = ToolCall(id="c1", name="search", arguments={"q": 1}, text='{"q":1}')
    said = ChatMessage(role="assistant", content="Hm.", tool_calls=(call,))
    use = {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": 1}}
    thought = {"type": "thinking", "thinking": "Where?", "signature": "c2ln"}
    text = {"type": "text", "text": "Hm."}

    def tokens(*parts: object) -> int:
        return message_tokens(replace(said, provider_parts=list(parts)), len)

    alone = message_tokens(said, len)
    assert tokens(text, use) == alone
    assert tokens(thought, text, use) == tokens(thought) == alone + len("Where?c2ln")
    assert tokens(text, text) == alone + len("Hm.")
    said = replace(said, tool_calls=(replace(call, text='{ "q": 1 }'),))
    assert tokens(text, use) == tokens() == alone + len("   ")
    sent: list[AnyMessage] = [said.as_dict(), {**said.as_dict(), "provider_parts": [thought]}]
    assert messages_tokens(sent, len) == 2 * messages_tokens(sent[:1], len) + len("Where?c2ln")


@pytest.mark.parametrize(
    ("part", "texts"),
    [
        (None, []),
        ("", []),
        ([{"type": "odd", "id": "a", "number": 1, "deep": [{"text": "x"}, "y"]}], ["x", "y"]),
        ({"type": "redacted_thinking", "data": "c2ln"}, ["c2ln"]),
        ({"thought_signature": b"sign"}, ["c2lnbg=="]),
        ({"type": "reasoning.encrypted", "format": "f", "data": "c2ln"}, ["f", "c2ln"]),
        ({"functionCall": {"id": "1", "name": "f", "args": {"n": 1}}}, ["f", '{"n":1}']),
        ({"type": "input", "input": "text"}, ["text"]),
        ({"type": "text", "media_type": "text/plain", "data": "x"}, ["text/plain", "x"]),
        ({"inlineData": {"mimeType": "image/png", "data": "iVBO"}}, ["image/png", ""]),
        ({"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}}, ["", "wav"]),
        ({"type": "file", "file": {"filename": "f", "file_data": "JVBE"}}, ["f", ""]),
        ({"source": {"type": "url", "url": "https://x.org"}}, [""]),
        ({"image_url": "data:image/png;base64,iVBO"}, [""]),
        ({"images": ["iVBORw0KGgoAAAANSUhEUg", "/9j/4AAQSkZJRg"]}, ["", ""]),
        ({"image": {"format": "png", "source": {"bytes": b"PNG"}}}, ["png", ""]),
        ({"type": "file", "base64": "JVBE", "mediaType": "a/b"}, ["", "a/b"]),
        ({"resource": {"uri": "file:a", "blob": "JVBE"}}, ["file:a", ""]),
        ({"cited_text": "x", "file_id": None, "file_data": None, "bytes": None}, ["x"]),
        (UserList(["no JSON"]), []),
        ({"reasoning": "data: none"}, ["data: none"]),
    ],
)
def test_the_texts_of_a_part(part: object, texts: list[str]) -> None:
    """At any depth, but for kinds and ids; a file is an empty text, as nobody can count it."""
    assert [*part_texts(part)] == texts


def test_a_tag_names_one_block() -> None:
    """Two of one tag would share an entry of the account."""
    with pytest.raises(ValueError, match="two blocks have the tag B"):
        measure((block("x"), block("y")), len)


class Halves(Estimate):
    """A counter for which two letters are a token, rounded up."""

    name = "halves"
    exact = False

    def size(self, text: str) -> int:
        """Return the length."""
        return len(text)

    def tokens(self, size: int) -> int:
        """Return half of it."""
        return -(-size // 2)


def test_estimates_round_once() -> None:
    """An estimate of a block is that of its whole text, however many pieces it has."""
    whole = block("[a] one", "[b] two!", "[c] three", "[d] 4")
    alone = replace(whole, tag="A")

    assert block_tokens(whole, Halves()) == Halves().count(whole.text) + MESSAGE_OVERHEAD
    shared = measure(join_blocks((alone, whole)), Halves())
    content = str(render(join_blocks((alone, whole)))[0]["content"])
    assert sum(shared.values()) == Halves().count(content) + MESSAGE_OVERHEAD


def test_how_a_counter_counts() -> None:
    """An estimate is used for sums; of any other counter, the method is enough."""
    halves = Halves()

    assert count_function(halves) is halves
    assert count_function(Letters())("four") == 4


class Letters:
    """A counter for which a letter is a token."""

    name = "letters"
    exact = True

    def count(self, text: str) -> int:
        """Return the length."""
        return len(text)


def test_only_what_clearing_makes_smaller_saves_anything() -> None:
    """By a token at least."""
    stub = len(CLEARED) + 4
    (group,) = make_groups(history(entries=(called("a", stub - 1, stub, stub + 1),)), len)

    assert group.savings == {"a3": 1}
