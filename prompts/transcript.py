"""A conversation as text that a model can summarise: passages, in chunks of bounded size."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from formatters.guard import one_line, quoted
from formatters.lookalikes import HINT, readings
from formatters.model import Count, Message, Role, ToolCall
from formatters.redaction import redact_secrets
from formatters.rows import fix_surrogates
from formatters.structure import OPEN
from formatters.turns import group_turns

_SPEAKERS: Final = {
    Role.HUMAN: "USER",
    Role.AI: "ASSISTANT",
    Role.TOOL: "TOOL",
    Role.OTHER: "OTHER",
}

#: What the guard of contexts knows nothing of: the other lines of these passages, and the markers
#: around them.
_OWN_LINE: Final = re.compile(
    rf"{OPEN}"
    r"(?:conversation|summary|user|human|assistant|ai|system|developer|other"
    r"|tool[\s_|-]*+(?:\[[^\]]{0,64}\])?+)(?:\s*+\(continued\))?\s*+:"
    r"|(?:[\s>_|#=+\"']|-(?!-{0,8}>))*+-{1,9}>"
)


@dataclass(frozen=True, slots=True)
class Passage:
    """What one message says, or a piece of it."""

    #: Who speaks: ``USER``, or ``TOOL[call_1]``.
    label: str
    #: Guarded; lines that are ours begin with two blanks and an arrow.
    body: str

    @property
    def text(self) -> str:
        """Return the passage as it stands in a prompt."""
        return f"{self.label}: {self.body}"

    def pieces(self, bodies: Iterator[str]) -> Iterator["Passage"]:
        """Yield a passage for each piece of the body, all but the first marked as continued."""
        for place, body in enumerate(bodies):
            yield Passage(self.label if place == 0 else f"{self.label} (continued)", body)


def passage(message: Message, *, redact: bool = True) -> Passage:
    """Return what a message says, with its calls below; secrets in it are redacted.

    No line of a message can be read as another speaker's, as a call or as a marker: such lines get
    a leading backslash.
    """
    clean = redact_secrets if redact else str
    # callers in process may hold a message without a text
    said = guarded(clean(fix_surrogates(message.content or "")))
    calls = (f"  -> {guarded(clean(_call(call)))}" for call in message.tool_calls)
    return Passage(_label(message), "\n".join([said, *calls] if said else calls))


def guarded(text: str) -> str:
    """Escape the lines of a text that could be read as ours, whatever it is made of."""
    return "\n".join(f"\\{line}" if _is_ours(line) else line for line in quoted(text).splitlines())


def _is_ours(line: str) -> bool:
    return bool(HINT.search(line)) and any(map(_OWN_LINE.match, readings(line)))


def _label(message: Message) -> str:
    speaker = _SPEAKERS[message.role]
    if message.role is not Role.TOOL:
        return speaker
    named = message.tool_call_id or message.name
    return f"{speaker}[{_name(named)}]" if named else speaker


def _call(call: ToolCall) -> str:
    arguments = call.text if call.text is not None else _json(call.arguments)
    return f"{_name(call.name)}({one_line(fix_surrogates(arguments))})"


def _json(arguments: object) -> str:
    if arguments is None:
        return ""
    try:
        return json.dumps(arguments, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys of any type, circles, great depth
        return "…"


def _name(name: str) -> str:
    """Return a name without what could end a label."""
    return re.sub(r"[^\w.-]", "_", name[:64])


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
    for turn in group_turns(messages):
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
