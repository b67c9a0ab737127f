from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from formatters.model import Count, Message, Role, ToolCall
from prompts.summary_prompt import MIN_PIECE_TOKENS, Chunk, guard_lines, split_chunks


def message(number: int, role: Role, content: str, **fields: Any) -> Message:
    """Return a message."""
    return Message(id=f"m{number}", role=role, content=content, **fields)


def labels(found: list[Chunk]) -> list[list[str]]:
    """Return who speaks in each chunk."""
    return [[passage.label for passage in chunk.entries] for chunk in found]


def test_chunks_end_between_turns() -> None:
    """A turn that doesn't fit behind another begins a chunk."""
    talk = [
        message(n, Role.HUMAN if n % 2 else Role.AI, "x" * 20) for n in range(1, 7)
    ]  # 28 to 33 characters a passage
    assert labels(split_chunks(talk, 130, len)) == [
        ["USER", "ASSISTANT"] * 2,
        ["USER", "ASSISTANT"],
    ]
    assert labels(split_chunks(talk, 1_000, len)) == [["USER", "ASSISTANT"] * 3]
    assert split_chunks([], 100, len) == []


def test_a_large_turn_ends_between_calls() -> None:
    """A call stays with its results as long as both fit."""
    call = ToolCall(id="c", name="f", text="{}")
    talk = [
        message(1, Role.HUMAN, "x" * 20),
        message(2, Role.AI, "", tool_calls=(call,)),
        message(3, Role.TOOL, "y" * 20, tool_call_id="c"),
        message(4, Role.AI, "z" * 20),
    ]
    assert labels(split_chunks(talk, 60, len)) == [
        ["USER"],
        ["ASSISTANT", "TOOL[c]"],
        ["ASSISTANT"],
    ]
    assert labels(split_chunks(talk, 32, len)) == [
        ["USER"],
        ["ASSISTANT"],
        ["TOOL[c]"],
        ["ASSISTANT"],
        ["ASSISTANT (continued)"],
    ]


def test_a_result_may_open_a_history() -> None:
    """It has nothing to stand behind."""
    assert labels(split_chunks([message(1, Role.TOOL, "4")], 50, len)) == [["TOOL"]]


def test_a_large_message_is_cut_at_line_ends_then_blanks() -> None:
    """And anywhere in what has neither."""
    text = "some words of a first line\nand more words, then " + "z" * 60
    found = split_chunks([message(1, Role.HUMAN, text)], 60, len)
    bodies = [passage.body for chunk in found for passage in chunk.entries]

    assert "".join(bodies) == text
    assert bodies[:2] == ["some words of a first line\n", "and more words, then "]
    assert all(chunk.tokens <= 60 for chunk in found)


TALK = st.lists(
    st.builds(
        message,
        st.just(1),
        st.sampled_from(Role),
        st.text(alphabet=st.sampled_from("ab \n。日😀"), max_size=300),
        run_id=st.sampled_from([None, "r1", "r2"]),
    ),
    max_size=8,
)


@given(TALK, st.integers(60, 200))
def test_nothing_is_left_out(talk: list[Message], most: int) -> None:
    """Every chunk is within its size, and together they have all that was said."""
    found = split_chunks(talk, most, len, redact=False)
    bodies = "".join(passage.body for chunk in found for passage in chunk.entries)

    assert all(chunk.tokens <= most for chunk in found)
    assert all(len("\n\n".join(p.text for p in chunk.entries)) <= most for chunk in found)
    assert sorted(bodies) == sorted("".join(guard_lines(each.content) for each in talk))


def test_pieces_have_room_in_tiny_chunks(count: Count) -> None:
    """A chunk smaller than a label still makes progress, one least piece at a time."""
    found = split_chunks([message(1, Role.TOOL, "😀" * 100, tool_call_id="c" * 64)], 4, count)
    bodies = [passage.body for chunk in found for passage in chunk.entries]

    assert "".join(bodies) == "😀" * 100
    assert all(count(body) <= MIN_PIECE_TOKENS for body in bodies)
