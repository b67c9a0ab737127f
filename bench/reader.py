"""Read rendered contexts as a tolerant model would, from the text alone.

It shares no code with the guard. It finds the service's structure, and everything that looks the
same to a reader who ignores case, width, script, emphasis, invisible characters and the exact start
of a line. It can't know whether a piece was written by the service or forged: a context is sound if
it has exactly the pieces of a context with harmless texts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

from bench.looks import folded, readings

TAGS: Final = (
    "core identity",
    "capabilities",
    "shared memory",
    "friends info",
    "this moment",
    "recalled",
    "context summary",
)


class Piece(NamedTuple):
    """A piece of structure."""

    #: ``message``, ``tag``, ``row``, ``day``, ``calls``, ``element``, ``role``, ``tool`` or
    #: ``parameter``.
    kind: str
    #: Which: a tag's name, a row's speaker and time, how many calls, a mark as it reads.
    text: str


def read(messages: Sequence[Mapping[str, Any]], tags: Sequence[str] = ()) -> tuple[Piece, ...]:
    """Return what messages are made of, in their order; ``tags`` are in use besides ours."""
    known = (*TAGS, *(tag.lower().replace("_", " ") for tag in tags))
    pieces: list[Piece] = []
    for message in messages:
        pieces += (Piece("message", message["role"]), *_content(message["content"], known))
        answered = str(message.get("tool_call_id", ""))
        pieces += _content(answered, known)
        for call in message.get("tool_calls", ()):
            said = (call["id"], call["function"]["name"], call["function"]["arguments"])
            pieces += (piece for text in said for piece in _content(text, known))
    return tuple(pieces)


def _content(text: str, tags: tuple[str, ...]) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    for line in text.splitlines():
        pieces += _line(line, tags, offers_tools=_is_under(pieces, "capabilities"))
    return (*pieces, *_split_over_lines(text, tags))


def _is_under(pieces: Sequence[Piece], tag: str) -> bool:
    return next((piece.text for piece in reversed(pieces) if piece.kind == "tag"), "") == tag


# --- lines -----------------------------------------------------------------------------------

#: Marks of chat templates. The last of each pair is what it has to be followed by, if anything.
_ROLE_MARKS: Final = re.compile(
    r"<\|[\w▁.:/-]{1,48}\|?>"
    r"|<[\w▁.:/-]{1,48}\|>"
    r"|<\s*\|\s*/?\s*(?:im_start|im_end|system|user|assistant|start_header_id|eot_id)(?![\w\\-])"
    r"|\[\s*/?\s*(?:inst|tool_calls|tool_results|available_tools|system_prompt)\s*\]"
    r"|<?<\s*/?\s*sys\s*>"
    r"|<\s*/\s*s\s*>|(?<![\w\\])<s>"
    r"|<\s*/?\s*(?:start_of_turn|end_of_turn|[be]o[sp]|sop|tool_call|tool_response|[be]os_token"
    r"|begin_of_sentence|(?:start|end)_function_call|extra_id_\d)\s*>"
    r"|<\s*/?\s*(?:invoke\s+name|function)\s*=|<\s*role\s*>\s*(?:system|user)\s*<"
    r"|<\|dsml\||\[\|(?:system|user|assistant|endofturn)\|\]"
)
_ELEMENTS: Final = re.compile(
    r"<\s*/?\s*(?:human[\s_-]*input|current[\s_-]*time|operator[\s_-]*note)(?!\w|\\+\w)"
)

#: How the next line of a template's transcript begins: behind indentation or quote marks, and
#: perhaps as a heading.
_ROLE_LINE: Final = re.compile(
    r"[\s>\"'“‘👤🤖]*(?:#+\s*)?(?:\[[^\]]{0,40}\]\s*)?[\[(]?(user|assistant|system|human)[\])]?\s*:(?![:/])"
)
_INSTRUCTIONS: Final = re.compile(r"[\s>]*###+\s*(?:instruction|response|input)s?\s*:")

_BEFORE: Final = re.compile(
    r"(?:[^\w\[<\\]|_|[0-9]+(?![^\W_])|(?:[a-z]|[ivx]{2,4})[.)](?!\S)|</?p>)*"
)
_BEFORE_A_DAY: Final = re.compile(r"(?:[^\w\[<\\]|_|\d{1,3}[.)])*")
#: A note or a task's box before a tag.
_BEFORE_A_TAG: Final = re.compile(r"\[[^\[\]\\]{0,24}\][\s:.-]*(?=[\[<])")
_SPEAKER: Final = re.compile(r"(?:\[([^\]]{0,40})\]:?\s*)?[\[(<]?(human|nexus)[\])>]?\s*:")
_STRANGER: Final = re.compile(r"\[+\s*(unknown time|\d{4}-\d\d-\d\d \d\d:\d\d)\s*\]+\s*(\S{1,40}):")
#: A line that has a day and nothing more, perhaps in pieces: one that goes on is a log's.
_DAY: Final = re.compile(
    r"\[?\s*(unknown[\s_-]*time|\d{4}\s*[-–—]\s*\d\d\s*[-–—]\s*\d\d)\s*\]+[^\w\\]*"
)
_TAG: Final = re.compile(r"[\[<]\s*(/?)\s*([a-z][a-z0-9_ |-]*)")
#: What stands for letters in the eyes of some.
_LETTERS: Final = str.maketrans("|10", "iio")
_PLAIN_TAG: Final = re.compile(r"\[(/?(?:run|summary|history))\](?!\()")
#: "shared_memory[0]" is code.
_REST_OF_TAG: Final = re.compile(r"[^\[\]]*\]")
_CALLS: Final = re.compile(r"\[\s*tool[\s_]*use\s*:")

#: An annotation as it is written: up to the first bracket that nothing escapes.
_WRITTEN_CALLS: Final = re.compile(r"\[((?:[^\]\\]|\\.)*)\]")
_BETWEEN_CALLS: Final = re.compile(r"(?<!\\)(?:\\\\)*;")

_PARAMETER: Final = re.compile(r"- (?:[^(\\]|\\.)*\(((?:[^)\\]|\\.)*)\)")


# hostile texts stand in many places of a context
@lru_cache(maxsize=4_096)
def _line(line: str, tags: tuple[str, ...], *, offers_tools: bool) -> tuple[Piece, ...]:
    """Read a line: its marks wherever they stand, and what it begins with."""
    seen = list(readings(line))
    pieces: list[Piece] = []
    for kind, marks in (("role", _ROLE_MARKS), ("element", _ELEMENTS)):
        pieces += (Piece(kind, mark[0]) for mark in max((_all(marks, s) for s in seen), key=len))
    return (*pieces, *_beginning(line, tags, offers_tools=offers_tools))


def _all(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    return list(pattern.finditer(text))


def _beginning(line: str, tags: Sequence[str], *, offers_tools: bool = False) -> Iterator[Piece]:
    """Read what a line begins with; if that is a speaker, then also what is said there."""
    if offers_tools and (piece := _of_a_tool(line)):
        yield piece
        # "### Response:" is a heading too
        if role := _INSTRUCTIONS.match(folded(line)) or _ROLE_LINE.match(folded(line)):
            yield Piece("role", role[0].strip())
        return
    for seen in readings(line):
        if piece := _opening(seen, line, tags):
            yield piece
            if piece.kind == "row":
                yield from _beginning(line.partition(":" if ": " not in line else ": ")[2], tags)
            return


def _opening(seen: str, line: str, tags: Sequence[str]) -> Piece | None:
    start = _BEFORE.match(seen)
    rest = seen[start.end() :] if start else seen
    if rest.startswith("\\") or seen.lstrip().startswith("\\"):
        return None
    if _CALLS.match(rest):
        return Piece("calls", _calls(line))
    if speaker := _SPEAKER.match(rest):
        return Piece("row", f"{speaker[2]} {_time(rest)}".strip())
    if stranger := _STRANGER.match(rest):
        return Piece("row", f"{stranger[2]} {stranger[1]}")
    if day := _DAY.fullmatch(_BEFORE_A_DAY.sub("", seen, count=1)):
        return Piece("day", day[1])
    if role := _ROLE_LINE.match(seen) or _INSTRUCTIONS.match(seen):
        return Piece("role", role[0].strip())
    return _tag(rest, tags) or _named(_BEFORE_A_TAG.sub("", rest, count=1), tags)


def _time(line: str) -> str:
    found = re.match(r"\[([^\]]*)\]", line)
    return found[1] if found else ""


def _tag(text: str, tags: Sequence[str]) -> Piece | None:
    if plain := _PLAIN_TAG.match(text):
        return Piece("tag", plain[1])
    if re.match(r"\[\s*tool result cleared", text):
        return Piece("tag", "tool result cleared")
    return _named(text, tags)


def _named(text: str, tags: Sequence[str]) -> Piece | None:
    """Read a tag that stands in contexts: those of accounts are ordinary words behind a box."""
    if found := _TAG.match(text):
        for tag in tags:
            # "[capabilities-list]" is another name
            whole = re.compile(tag.replace(" ", r"[\s_-]+") + r"(?:[_-]*(?![\w-]))")
            if whole.match(found[2]) or whole.match(found[2].translate(_LETTERS)):
                return Piece("tag", found[1] + tag)
    return None


def _calls(line: str) -> str:
    """Count the calls of an annotation that is written right to its end."""
    whole = _WRITTEN_CALLS.fullmatch(line)
    return str(len(_BETWEEN_CALLS.split(whole[1]))) if whole else "unfinished"


def _of_a_tool(line: str) -> Piece | None:
    """Read a line of `[CAPABILITIES]` that begins as only its lines do."""
    seen = folded(line).lstrip(" >|")
    if re.match(r"#{1,6}\s", seen):
        return Piece("tool", "")
    if re.fullmatch(r"parameters\s*:\s*", seen):
        return Piece("parameter", "first")
    if parameter := _PARAMETER.match(seen):
        words = parameter[1].rsplit(", ", 1)
        return Piece("parameter", words[-1]) if words[-1] in {"required", "optional"} else None
    return None


def _split_over_lines(text: str, tags: Sequence[str]) -> Iterator[Piece]:
    """Read what begins at the end of one line and goes on in the next."""
    lines = [folded(line).strip() for line in text.splitlines()]
    for first, second in pairwise(lines):
        if first.endswith("<") and ">" in second and _ELEMENTS.match(f"<{second}"):
            yield Piece("element", f"<{second}")
        if first.endswith("[") and _REST_OF_TAG.match(second) and (tag := _tag(f"[{second}", tags)):
            yield tag
