"""A conversation in chunks that a model can read, so that its length is no limit."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from formatters.model import Count, Message, Role
from formatters.turns import turns_of
from prompts.passages import Passage, passage

#: Tokens that part two passages, at most.
BETWEEN = 2
#: Tokens of a piece of a message at least, however little room a chunk has.
LEAST_PIECE = 16


@dataclass(frozen=True, slots=True)
class Chunk:
    """What goes into one prompt."""

    passages: tuple[Passage, ...]
    #: Of the passages, with what parts them.
    tokens: int


@dataclass(frozen=True, slots=True)
class _Priced:
    """A passage with its tokens."""

    passage: Passage
    tokens: int


def chunks(
    messages: Sequence[Message], most: int, count: Count, *, redact: bool = True
) -> list[Chunk]:
    """Return all that was said, in chunks of ``most`` tokens, given oldest first.

    A chunk ends between turns; in a turn that is larger, between calls with their results; in what
    is larger still, between messages, and in the end inside one. Nothing is left out.
    """
    found: list[Chunk] = []
    filling: list[_Priced] = []
    for block in _blocks(messages, most, count, redact=redact):
        if filling and _tokens(filling) + _tokens(block) > most:
            found.append(_chunk(filling))
            filling = []
        filling += block
    return [*found, _chunk(filling)] if filling else found


def _blocks(
    messages: Sequence[Message], most: int, count: Count, *, redact: bool
) -> Iterator[list[_Priced]]:
    """Yield what stays together: a turn, or what is small enough of it."""
    for turn in turns_of(messages):
        steps = [
            [priced for message in step for priced in _priced(message, most, count, redact=redact)]
            for step in _steps(turn.messages)
        ]
        for block in _small([priced for step in steps for priced in step], steps, most):
            yield from _small(block, [[priced] for priced in block], most)


def _small(whole: list[_Priced], parts: list[list[_Priced]], most: int) -> Iterable[list[_Priced]]:
    return [whole] if _tokens(whole) <= most else parts


def _steps(messages: Sequence[Message]) -> list[list[Message]]:
    """Return a turn's messages, results of tools with what they stand behind."""
    steps: list[list[Message]] = []
    for message in messages:
        if message.role is Role.TOOL and steps:
            steps[-1].append(message)
        else:
            steps.append([message])
    return steps


def _priced(message: Message, most: int, count: Count, *, redact: bool) -> Iterator[_Priced]:
    """Yield the passage of a message, or the pieces of one that is larger than a chunk."""
    whole = passage(message, redact=redact)
    if (tokens := count(whole.text) + BETWEEN) <= most:
        yield _Priced(whole, tokens)
        return
    label = count(f"{whole.label} (continued): ")
    room = max(most - label - BETWEEN, LEAST_PIECE)
    for piece in whole.pieces(_pieces(whole.body, room, count)):
        yield _Priced(piece, count(piece.text) + BETWEEN)


def _pieces(text: str, room: int, count: Count) -> Iterator[str]:
    """Yield a text in pieces of so many tokens, cut at line ends or blanks where there are some."""
    start = 0
    while start < len(text):
        size = room * 4
        while size > 1 and (tokens := count(text[start : start + size])) > room:
            size = max(min(size * room // tokens, size - 1), 1)
        end = start + size
        if end < len(text):
            end = _break(text, start + size // 2, end)
        yield text[start:end]
        start = end


def _break(text: str, start: int, end: int) -> int:
    """Return where to end a piece: behind the last line end between two places, or blank."""
    return text.rfind("\n", start, end) + 1 or text.rfind(" ", start, end) + 1 or end


def _tokens(block: Iterable[_Priced]) -> int:
    return sum(priced.tokens for priced in block)


def _chunk(filling: Sequence[_Priced]) -> Chunk:
    return Chunk(tuple(priced.passage for priced in filling), _tokens(filling))
