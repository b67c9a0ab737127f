import pytest

from formatters.model import (
    COUNT_MARK,
    MAX_MADE,
    Block,
    ChatMessage,
    Entry,
    Made,
    ToolCall,
    Turn,
    cached,
    cached_of_turns,
    join_blocks,
    render,
)


def test_a_message_a_block() -> None:
    """Each block is a message with its role, in the order given."""
    blocks = (
        Block(tag="A", role="system", entries=(Entry(text="You are Nexus."),)),
        Block(tag="B", header="[B]\n", entries=(Entry(text="one"), Entry(text="two"))),
    )

    assert render(blocks) == [
        {"role": "system", "content": "You are Nexus."},
        {"role": "user", "content": "[B]\none\ntwo"},
    ]


@pytest.mark.parametrize(
    ("rows", "text"),
    [((), "[A count=0]\nnothing"), ((1,), "[A count=1]\nx"), ((2, 3), "[A count=5]\nx\nx")],
)
def test_the_header_counts_what_is_there(rows: tuple[int, ...], text: str) -> None:
    """The header has the number of rows that are printed, and says so where there are none."""
    entries = tuple(Entry(text="x", rows=each) for each in rows)
    block = Block(tag="A", header=f"[A {COUNT_MARK}]\n", entries=entries, placeholder="nothing")

    assert block.text == text


def test_content_is_no_header() -> None:
    """The placeholder of the number in a header is ordinary text elsewhere."""
    block = Block(tag="A", header="[A]\n", entries=(Entry(text=COUNT_MARK, rows=1),))

    assert block.text == f"[A]\n{COUNT_MARK}"


def test_blocks_can_share_a_message() -> None:
    """A blank line is between two; the others have messages of their own."""
    shared = join_blocks(
        Block(tag=tag, header=f"[{tag}]\n", entries=(Entry(text="x"),)) for tag in "AB"
    )
    alone = Block(tag="C", entries=(Entry(text="y"),))

    assert render((*shared, alone)) == [
        {"role": "user", "content": "[A]\nx\n\n[B]\nx"},
        {"role": "user", "content": "y"},
    ]


def test_the_first_of_them_opens_a_message() -> None:
    """It joins no earlier message."""
    alone = Block(tag="C", entries=(Entry(text="y"),))
    (block,) = join_blocks([Block(tag="A", entries=(Entry(text="x"),))])

    assert [message["content"] for message in render((alone, block))] == ["y", "x"]


def test_native_entries_are_messages() -> None:
    """Each entry adds its messages; an empty block adds none."""
    messages = (ChatMessage(role="user", content="q"), ChatMessage(role="assistant", content="a"))
    block = Block(tag="H", native=True, entries=(Entry(text="", native=messages),) * 2)

    assert [message["content"] for message in render((block,))] == ["q", "a", "q", "a"]
    assert render((Block(tag="H", native=True, entries=()),)) == []


def test_how_arguments_were_written_makes_no_difference() -> None:
    """All else does."""
    call = ToolCall(id="1", name="f", arguments={})

    assert call == ToolCall(id="1", name="f", arguments={}, text="{ }")
    assert call != ToolCall(id="2", name="f", arguments={})
    assert call != ToolCall(id="1", name="f", arguments={"n": 1})


def test_little_is_kept_with_a_value() -> None:
    """A new form replaces all others once they are too many; None keeps nothing."""
    made: Made = {}
    first = [cached(made, number, object) for number in range(MAX_MADE)]
    again = [cached(made, number, object) for number in range(MAX_MADE)]

    assert all(one is other for one, other in zip(first, again, strict=True))
    cached(made, "another", object)
    assert [*made] == ["another"]
    assert cached(None, 0, lambda: 7) == 7


def test_what_another_thread_makes_meanwhile_is_taken_for_itself() -> None:
    """Two builds of a new history fill the turns of each other."""
    first, second = (Turn((), (), {}) for _ in range(2))

    def make(turn: Turn) -> str:
        if turn is first and second.made is not None:
            second.made["key"] = "theirs"
        return "ours"

    assert cached_of_turns((first, second), "key", make) == ["ours", "theirs"]
