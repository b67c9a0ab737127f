"""How much of what answers a question is in a text."""

from collections.abc import Iterator
from typing import Final

from bench.recall.cases import Case, Question
from bench.recall.texts import folded, texts

#: Characters of a message that count as all of it.
CHARS: Final = 450
#: Characters of the pieces in which passages of a long message are looked for, at least.
PIECE: Final = 60
#: The share of these characters that counts as all of them, and that counts at all.
ALL: Final = 0.9
LEAST: Final = 0.2


def share_kept(case: Case, question: Question, text: str) -> float:
    """Return how much of the messages that answer is there: their beginnings, or passages.

    What a message says and each of its calls count the same.
    """
    wanted = {row["id"]: texts(row) for row in case.rows if row["id"] in question.evidence}
    shown = folded(text)
    found = (
        sum(_kept(each, shown) for each in wanted[id_]) / max(len(wanted[id_]), 1)
        for id_ in question.evidence
    )
    return sum(found) / len(question.evidence)


def share_answered(question: Question, text: str) -> float | None:
    """Return how many of the passages that answer are there; None if whole messages answer."""
    if not question.passages:
        return None
    shown = folded(text)
    return sum(folded(each[:CHARS]) in shown for each in question.passages) / len(question.passages)


def _kept(content: str, shown: str) -> float:
    if folded(content[:CHARS]) in shown:
        return 1.0
    if len(content) <= CHARS:
        return 0.0
    found = sum(len(piece) for piece in _pieces(content) if folded(piece) in shown)
    share = found / (ALL * CHARS)
    return min(share, 1.0) if share >= LEAST else 0.0


def _pieces(content: str) -> Iterator[str]:
    piece = ""
    for word in content.split():
        piece = f"{piece} {word}" if piece else word
        if len(piece) >= PIECE:
            yield piece
            piece = ""
    if piece:
        yield piece
