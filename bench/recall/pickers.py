"""What the strategies are compared with: other ways to pick messages for n tokens.

Each message is a line as `[SHARED_MEMORY]` has it, with its time. Results of tools are messages,
too, and calls with all their arguments follow a message's text. Scores are of BM25 over terms of
their own (`bench.recall.terms`), so that none of them changes with what it is compared with.
"""

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from statistics import fmean, pstdev
from typing import Any, Final

from bench.recall.cases import Case
from bench.recall.terms import terms
from bench.recall.texts import full_text
from bench.recounts import OVERHEAD, tokens
from service.recall.bm25 import bm25, find_postings

HEADER: Final = "[SHARED_MEMORY count=9999]\nRecent conversation memory:\n\n"
#: Characters that a line shows of a message.
CHARS: Final = 500
SPEAKERS: Final = {"human": "Human", "tool": "Tool"}
#: Messages on either side that count as a message's own.
NEIGHBOURS: Final = 2

#: Score the messages of a case for a question.
Scores = Callable[["Lines", str], Sequence[float]]


class Lines:
    """A history as lines, with what each costs."""

    def __init__(self, case: Case) -> None:
        self.texts = [_line(row) for row in case.rows]
        self.costs = [tokens(f"{text}\n") for text in self.texts]
        self.terms = [terms(full_text(row)) for row in case.rows]
        reach = (
            self.terms[max(n - NEIGHBOURS, 0) : n + NEIGHBOURS + 1] for n in range(len(case.rows))
        )
        #: Those of a message and of its neighbours.
        self.terms_around: list[Counter[str]] = [sum(near, Counter()) for near in reach]

    def picked(self, scores: Sequence[float], budget: int) -> str:
        """Return the text of what scores highest within a budget, in its order."""
        places = range(len(scores))
        return self.pick(sorted(places, key=lambda at: (scores[at], at), reverse=True), budget)

    def pick(self, ranked: Sequence[int], budget: int) -> str:
        """Return the text of what fits a budget, the best places first, in its order."""
        room = budget - tokens(HEADER) - OVERHEAD
        kept = []
        for place in ranked:
            if self.costs[place] <= room:
                room -= self.costs[place]
                kept.append(place)
        return "\n".join([HEADER, *(self.texts[place] for place in sorted(kept))])


def _line(row: dict[str, Any]) -> str:
    text = full_text(row)
    shown = text if len(text) <= CHARS else f"{text[: CHARS - 3]}..."
    speaker = SPEAKERS.get(row["role"].lower(), "Nexus")
    return f"[{row['timestamp'][:16].replace('T', ' ')}] {speaker}: {shown}"


def newest(lines: Lines, _: str) -> Sequence[float]:
    """Score by age."""
    return range(len(lines.texts))


def single(lines: Lines, text: str) -> Sequence[float]:
    """Score each message by its own words."""
    return _scores(text, lines.terms)


def with_neighbours(lines: Lines, text: str) -> Sequence[float]:
    """Score each message by the words of it and of its neighbours."""
    return _scores(text, lines.terms_around)


def _scores(text: str, found: Sequence[Mapping[str, int]]) -> Sequence[float]:
    query = {term: float(count) for term, count in terms(text).items()}
    lengths = [sum(each.values()) for each in found]
    return bm25(query, find_postings(query, found), lengths)


def both(lines: Lines, text: str) -> Sequence[float]:
    """Add the two, each standardised."""
    pair = (_standard(single(lines, text)), _standard(with_neighbours(lines, text)))
    return [one + other for one, other in zip(*pair, strict=True)]


def _standard(scores: Sequence[float]) -> list[float]:
    middle, spread = fmean(scores), pstdev(scores) or 1.0
    return [(score - middle) / spread for score in scores]


PICKERS: Final[dict[str, Scores]] = {
    "newest": newest,
    "bm25": single,
    "bm25_neighbours": with_neighbours,
    "bm25_both": both,
}

#: BM25 over passages of long messages, each a line of its own.
PASSAGES: Final = "bm25_passages"


def passages(case: Case) -> Lines:
    """Return a history as lines of at most as many characters as a line shows."""
    rows = [
        {"role": row["role"], "timestamp": row["timestamp"], "content": text}
        for row in case.rows
        for text in split_passages(full_text(row))
    ]
    return Lines(replace(case, rows=rows))


def split_passages(text: str) -> list[str]:
    """Split a text at the ends of its lines, or where a line is too long, within it."""
    parts = [""]
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), CHARS):
            piece = line[start : start + CHARS]
            if len(parts[-1]) + len(piece) > CHARS:
                parts.append("")
            parts[-1] += piece
    return parts


#: langchain-core's way, which no question changes.
TRIM: Final = "trim_messages"


def has_langchain() -> bool:
    """Return whether langchain-core is installed here."""
    return find_spec("langchain_core") is not None


def trimmed(case: Case, budget: int) -> str:
    """Return what langchain-core's `trim_messages` keeps, with the same counts a message."""
    from langchain_core.messages import AIMessage, HumanMessage, trim_messages

    messages = [
        (HumanMessage if row["role"].lower() == "human" else AIMessage)(full_text(row))
        for row in case.rows
    ]
    cost = functools.cache(lambda text: tokens(text) + OVERHEAD)
    kept = trim_messages(
        messages,
        max_tokens=budget,
        strategy="last",
        token_counter=lambda given: sum(cost(message.content) for message in given),
    )
    return "\n".join(message.content for message in kept)
