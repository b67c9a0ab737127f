"""Laws of windows that move in chunks, on histories that grow at their end."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from formatters.model import Block, Count, Facts, MemoryView, Message, Role, render
from formatters.native import native_history
from formatters.rows import read_rows
from formatters.shared_memory import shared_memory
from service.budget.fit_history import fit_history
from service.budget.fit_recall import RecallInput, fit_recall
from service.budget.groups import Group, StableBudget, cost
from service.budget.strategies.relevance import Relevance
from service.budget.strategies.stable_window import LEAST_SHARE, StableWindow, chunked_window
from tests.laws.examples import WORDS, few

#: Groups as what they cost, what a store counts for them, and who opens them.
GROUPS = st.lists(
    st.tuples(st.integers(1, 60), st.integers(0, 60), st.sampled_from(Role)), max_size=60
)
LIMITS = st.integers(1, 400)
CHUNKS = st.integers(0, 500)


def groups_of(drawn: Sequence[tuple[int, int, Role]], *, known: bool = True) -> list[Group]:
    """Return groups, with the tokens before them where these are known."""
    starts = accumulate((counted for _, counted, _ in drawn), initial=0)
    return [
        Group(
            index,
            tokens,
            tokens,
            (Message(id=f"m{index}", role=role, content=""),),
            start=start if known else None,
        )
        for index, ((tokens, _, role), start) in enumerate(zip(drawn, starts, strict=False))
    ]


def begin(groups: Sequence[Group], limit: int, chunk: int, *, whole: bool = True) -> int | None:
    """Return where the window begins; None where there is none."""
    kept = chunked_window(groups, limit, chunk, whole=whole)
    return kept[0].index if kept else None


@given(drawn=GROUPS, limit=LIMITS, chunk=CHUNKS, whole=st.booleans())
def test_a_window_is_what_is_newest_and_fits(
    drawn: list[tuple[int, int, Role]], limit: int, chunk: int, whole: bool
) -> None:
    """It has no gap, is never over its limit, and is empty only where the newest has no room."""
    groups = groups_of(drawn)
    kept = list(chunked_window(groups, limit, chunk, whole=whole))

    assert kept == groups[len(groups) - len(kept) :]
    assert cost(kept) <= limit
    assert bool(kept) == bool(groups and groups[-1].tokens <= limit)
    if whole and cost(groups) <= limit:
        assert kept == groups


@given(drawn=GROUPS, limit=LIMITS, chunk=CHUNKS)
def test_a_window_never_goes_back(
    drawn: list[tuple[int, int, Role]], limit: int, chunk: int
) -> None:
    """What was left out of a build is left out of all that follow."""
    groups = groups_of(drawn)
    begins = [begin(groups[: n + 1], limit, chunk) for n in range(len(groups))]
    known = [place for place in begins if place is not None]

    assert known == sorted(known)


@given(drawn=GROUPS, limit=LIMITS, chunk=CHUNKS, data=st.data())
def test_a_window_is_the_same_however_much_was_read(
    drawn: list[tuple[int, int, Role]], limit: int, chunk: int, data: st.DataObject
) -> None:
    """A reader of more than fits finds the same place from any start."""
    groups = groups_of(drawn)
    read = data.draw(st.integers(0, max(len(groups) - 1, 0)))
    if cost(groups[read:]) <= limit:
        return

    assert begin(groups[read:], limit, chunk, whole=False) == begin(groups, limit, chunk)


@given(
    tokens=st.lists(st.integers(1, 20), min_size=1, max_size=120),
    limit=st.integers(160, 400),
    share=st.floats(0.1, 0.3),
)
def test_a_window_moves_once_for_a_chunk(tokens: list[int], limit: int, share: float) -> None:
    """Where turns are small next to it, and at least half of the room stays in use."""
    groups = groups_of([(each, each, Role.HUMAN) for each in tokens], known=False)
    chunk = int(limit * share)
    windows = [
        chunked_window(groups[: n + 1], limit, chunk, whole=True) for n in range(len(groups))
    ]
    moves = sum(one[0].index != other[0].index for one, other in pairwise(windows))

    # a chunk is rounded down by a fifth at most
    assert moves <= sum(tokens) / (chunk * 0.8) + 1
    least = min(limit, sum(tokens)) * LEAST_SHARE - max(tokens)
    assert cost(windows[-1]) >= least


def shown(rows: Sequence[Any], layout: str) -> Block:
    """Show history under the header that stays."""
    view = MemoryView(limit=None, header="still")
    facts = Facts(current_input="", history=read_rows(rows), memory=view)
    return native_history(facts) if layout == "chat" else shared_memory(facts)


def sent(block: Block) -> list[str]:
    """Return what is sent of a block: its messages, or the lines of its text."""
    if not block.native:
        return block.text.split("\n") if block.entries else []
    return [repr(message) for message in render([block])]


@few
@given(
    said=st.lists(st.tuples(st.sampled_from(["HUMAN", "AI"]), WORDS), max_size=30),
    layout=st.sampled_from(["chat", "tagged"]),
    limit=st.integers(64, 900),
    recalls=st.booleans(),
)
@example(  # the newest turn grows until it can't be sent, not even shortened
    said=[("HUMAN", "0"), ("HUMAN", "0"), ("AI", "0"), ("AI", "0"), ("AI", "0:")],
    layout="tagged",
    limit=69,
    recalls=False,
)
def test_history_grows_at_its_end_until_it_moves(
    count: Count, said: list[tuple[str, str]], layout: str, limit: int, recalls: bool
) -> None:
    """Where it begins with the same message, it has all that the build before has of it."""
    rows = [
        {"id": f"m{n}", "role": role, "content": words, "timestamp": f"2025-01-01T10:{n:02}:00Z"}
        for n, (role, words) in enumerate(said)
    ]
    blocks = []
    for length in range(len(rows) + 1):
        block = shown(rows[:length], layout)
        steady = StableBudget(limit, whole=True)
        if recalls:
            strategy = Relevance(
                recent_share=0.6, chunk_share=0.2, rank=no_score
            ).with_stable_budget(steady)
            none = Block(tag="RECALLED", entries=())
            recalling = RecallInput(none, strategy, lambda passages: [0.0] * len(passages))
            blocks.append(fit_recall(block, recalling, limit, count).block)
        else:
            window = StableWindow().with_stable_budget(steady)
            blocks.append(fit_history(block, window, limit, count).block)

    for one, other in pairwise(blocks):
        if one.moves or other.moves or not one.entries or not other.entries:
            continue
        if one.entries[0].messages[0].id == other.entries[0].messages[0].id:
            before = sent(one)
            assert sent(other)[: len(before)] == before


def no_score(_question: str, passages: Sequence[Any], _now: Any) -> list[float]:
    """Score everything alike."""
    return [0.0] * len(passages)
