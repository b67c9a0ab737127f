"""How much of what answers a question is in a text."""

from collections.abc import Iterator
from typing import Final

from bench.recall.cases import Case, Question

#: Characters of a message that count as all of it.
CHARS: Final = 450
#: Characters of the pieces in which passages of a long message are looked for, at least.
PIECE: Final = 60
#: The share of these characters that counts as all of them, and that counts at all.
ALL: Final = 0.9
LEAST: Final = 0.2


def share_kept(case: Case, question: Question, text: str) -> float:
    """Return how much of the messages that answer is there: their beginnings, or passages."""
    wanted = {row["id"]: row["content"] for row in case.rows if row["id"] in question.evidence}
    folded = _folded(text)
    found = (_kept(wanted[id_], text, folded) for id_ in question.evidence)
    return sum(found) / len(question.evidence)


def share_answered(question: Question, text: str) -> float | None:
    """Return how many of the passages that answer are there; None if whole messages answer."""
    if not question.passages:
        return None
    folded = _folded(text)
    return sum(_folded(each[:CHARS]) in folded for each in question.passages) / len(
        question.passages
    )


def _kept(content: str, text: str, folded: str) -> float:
    if content[:CHARS].strip() in text:
        return 1.0
    if len(content) <= CHARS:
        return 0.0
    found = sum(len(piece) for piece in _pieces(content) if piece in folded)
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


def _folded(text: str) -> str:
    return " ".join(text.split())
