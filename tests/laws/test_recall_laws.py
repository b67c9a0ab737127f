"""Laws of the recalled block, in both layouts, on generated histories."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from bench.account import Account, texts
from bench.recounts import Parts, parts_of
from formatters.model import Row
from service.config.settings import MemorySettings
from service.ports.stores import HistoryPage
from service.wire.response import BuildSuccess
from tests.laws.building import SPARE, build, built, law_builder, protected, written
from tests.laws.examples import ASKED, Asked
from tests.support import FixedHistory

CAPS = st.integers(64, 900)
LIMITS = st.one_of(st.none(), st.integers(0, 12))
SPECS = st.one_of(
    st.just("relevance"),
    st.builds(
        lambda share, chunk: {"name": "relevance", "recent_share": share, "chunk_share": chunk},
        st.floats(0, 1),
        st.sampled_from([0.0, 0.2, 1.0]),
    ),
)

#: A line of the block that somebody without the guard would take for a day.
DAY = re.compile(r"\[(?:\d+ [A-Z][a-z]+ \d{4}|unknown time)\]")

#: How a row opens.
SPEAKERS = (" Human:", " Nexus:", " Tool ")


def recalling(asked: Asked, spec: object, **limits: Any) -> tuple[BuildSuccess, Parts]:
    """Build with little room, so that something has to be recalled."""
    content = built(asked, spec, **limits)
    return content, parts_of(content)


@given(asked=ASKED, spec=SPECS, cap=CAPS, limit=LIMITS)
def test_the_recalled_block_is_accurate(
    asked: Asked, spec: object, cap: int, limit: int | None
) -> None:
    """N rows are under their days, each day has a row, and all is within the tokens."""
    content, parts = recalling(asked, spec, memory_tokens=cap, memory_limit=limit)
    assert parts.remembered <= cap
    # the first decision on a row has its tokens
    kept = [each for each in content.decisions if each.block == "RECALLED" and each.tokens]
    # of messages that the newest turns show, another part may be a row, without a decision
    shown = {
        id_
        for each in content.decisions
        if each.block == "SHARED_MEMORY" and each.decision in {"kept", "truncated", "annotated"}
        for id_ in each.message_ids
    }
    if "RECALLED" not in parts.texts:
        assert not kept
        return
    header, *lines = parts.texts["RECALLED"].split("\n")
    days = [place for place, line in enumerate(lines) if DAY.fullmatch(line)]
    rows = [place for place, line in enumerate(lines) if line.startswith(SPEAKERS)]

    assert header == f"[RECALLED count={len(rows)}]"
    assert len(kept) <= len(rows) <= len(kept) + len(shown)
    assert days[0] == 2  # behind a sentence and a blank line
    assert all(place + 1 in rows for place in days)
    assert all(lines[one] != lines[other] for one, other in pairwise(days))


@given(asked=ASKED, spec=SPECS, cap=CAPS, spare=SPARE, limit=LIMITS)
def test_each_candidate_is_decided_once(
    asked: Asked, spec: object, cap: int, spare: int, limit: int | None
) -> None:
    """Each candidate has one decision, what is recalled a score, and the sums are true."""
    asked = replace(asked, context={**asked.context, "memory_limit": limit})
    content = built(asked, spec, max_tokens=protected(asked, spec) + spare, memory_tokens=cap)
    decided = [id_ for each in content.decisions for id_ in each.message_ids]

    assert sorted(decided) == sorted(set(asked.candidates))
    assert all(each.score is not None for each in content.decisions if each.block == "RECALLED")
    kept = (each for each in content.decisions if each.decision == "kept")
    assert content.kept == sum(len(each.message_ids) for each in kept)


#: A line of `LONG`, and the number that identifies it.
NUMBERED = re.compile(r"Line (\d+) says \d+\.")


@given(asked=ASKED, spec=SPECS, cap=st.integers(300, 3_000))
def test_passages_are_in_order_and_their_gaps_are_marked(
    asked: Asked, spec: object, cap: int
) -> None:
    """A row shows no line twice, and where lines are left out between others there is a mark."""
    _, parts = recalling(asked, spec, memory_tokens=cap, memory_limit=None)
    speakers = "|".join(SPEAKERS)
    for row in re.split(rf"\n(?={speakers})", parts.texts.get("RECALLED", "")):
        said = row.partition("[tool_use:")[0]
        found = [*NUMBERED.finditer(said)]
        for one, other in pairwise(found):
            between = said[one.end() : other.start()]
            assert int(one[1]) < int(other[1])
            assert (int(other[1]) - int(one[1]) > 1) == ("..." in between)


@given(asked=ASKED, spec=SPECS, cap=CAPS)
def test_recalling_is_the_same_each_time(asked: Asked, spec: object, cap: int) -> None:
    """The same request has the same answer."""
    one, other = (build(asked, spec, memory_tokens=cap) for _ in range(2))
    assume(one.status == "success")

    assert written(one) == written(other)  # type: ignore[arg-type] # it has been looked at


class Searched(FixedHistory):
    """A history of which a build reads the newest rows, and those that a search finds."""

    def __init__(self, past: Sequence[Row], newest: int, found: Sequence[Row]) -> None:
        super().__init__(past)
        self._newest, self._found = newest, found
        #: What a build has found.
        self.found: list[Row] = []

    async def recent(self, *_args: object, **_options: object) -> HistoryPage:
        """Return the newest rows, newest first."""
        return HistoryPage(rows=self._rows[::-1][: self._newest], total=len(self._rows))

    async def search(self, *_args: object, **_options: object) -> list[Row]:
        """Return what is found, newest first; questions without words have no search."""
        self.found = [*self._found]
        return self.found[::-1]

    async def rows(self, owner_key: str, ids: Sequence[str], *, pruned: bool = True) -> list[Row]:
        """Return the rows with these ids."""
        return [row for row in self._rows if row["id"] in ids]


@given(asked=ASKED, spec=SPECS, cap=CAPS, limit=LIMITS, newest=st.integers(1, 6), data=st.data())
def test_what_a_search_finds_is_decided_on_once(
    asked: Asked, spec: object, cap: int, limit: int | None, newest: int, data: st.DataObject
) -> None:
    """So is what was said last; of both, what is kept is there, and what is left out is not."""
    older, last = asked.past[:-newest], asked.past[-newest:]
    history = Searched(asked.past, newest, [row for row in older if data.draw(st.booleans())])
    builder = law_builder(asked.tool_results)
    memory = MemorySettings(tool_results=asked.tool_results, whole_rows=1)
    searching = replace(
        builder,
        sources=replace(builder.sources, history=history),
        settings=builder.settings.model_copy(update={"memory": memory}),
    )
    asked = replace(asked, summaries=[])
    options = {"past": None, "memory_tokens": cap, "memory_limit": limit}
    content = build(asked, spec, builder=searching, **options)
    assert content.status == "success", content.error.detail

    rows: list[Any] = [*history.found, *last, *asked.run]
    decided = Counter(id_ for each in content.decisions for id_ in each.message_ids)
    assert decided == Counter({row["id"] for row in rows})
    counts = [each.count for each in content.decisions if each.decision == "not_read"]
    assert sum(filter(None, counts)) == len(asked.past) - len(history.found) - len(last)
    assert parts_of(content).remembered <= cap
    account = Account()
    others = [asked.words, asked.profile, asked.tools, asked.context]
    account.add("a context", rows, "\n".join(texts(others)), content)
    assert account.kept_but_absent == account.left_out_but_present == []
