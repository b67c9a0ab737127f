import pytest

from formatters.model import COUNT_MARK, Block, Count, Entry
from service.budget.counting import MESSAGE_OVERHEAD, block_tokens, entry_tokens


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

    tokens = block_tokens(block("[a]", "[b]"), count)

    assert counted == ["[a]\n", "[b]", "[B count=2]\nSome lines:\n\n"]
    assert tokens == sum(map(len, counted)) + 4
    assert entry_tokens(Entry(text="[a]"), len) == 4
