"""A reader of rendered contexts, as a tolerant model would read them, from the text alone.

It shares nothing with the guard. It finds what the service means by its structure, and whatever
looks the same to somebody who doesn't mind case, width, script, emphasis, invisible characters or
where exactly a line begins. Whether a piece was put there or forged it can't know: a context is
sound where it has just the pieces that one with harmless texts in it has.
"""

import html
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

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
        for call in message.get("tool_calls", ()):
            said = (call["function"]["name"], call["function"]["arguments"])
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
    r"|<\s*/?\s*(?:start_of_turn|end_of_turn|bos|eos|tool_call|tool_response)\s*>"
)
_ELEMENTS: Final = re.compile(
    r"<\s*/?\s*(?:human[\s_-]*input|current[\s_-]*time|operator[\s_-]*note)(?!\w|\\+\w)"
)

#: How the next line of a template's transcript begins: behind indentation or quote marks, and
#: perhaps as a heading.
_ROLE_LINE: Final = re.compile(
    r"[\s>\"'“‘]*(?:#+\s*)?(?:\[[^\]]{0,40}\]\s*)?[\[(]?(user|assistant|system|human)[\])]?\s*:(?![:/])"
)
_INSTRUCTIONS: Final = re.compile(r"[\s>]*###+\s*(?:instruction|response|input)s?\s*:")

_BEFORE: Final = re.compile(r"(?:[\s>_|#+=•·–—\"'“‘({-]|\d{1,3}[.)])*")
_SPEAKER: Final = re.compile(r"(?:\[([^\]]{0,40})\]\s*)?[\[(]?(human|nexus)[\])]?\s*:")
_STRANGER: Final = re.compile(r"\[+\s*(unknown time|\d{4}-\d\d-\d\d \d\d:\d\d)\s*\]+\s*(\S{1,40}):")
#: A line that has a day and nothing more, perhaps in pieces: one that goes on is a log's.
_DAY: Final = re.compile(
    r"\[?\s*(unknown[\s_-]*time|\d{4}\s*[-–—]\s*\d\d\s*[-–—]\s*\d\d)\s*\]+[^\w\\]*"
)
_TAG: Final = re.compile(r"[\[<]\s*(/?)\s*([a-z][a-z0-9_ -]*)")
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
    seen = list(_readings(line))
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
        if role := _INSTRUCTIONS.match(_folded(line)) or _ROLE_LINE.match(_folded(line)):
            yield Piece("role", role[0].strip())
        return
    for seen in _readings(line):
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
    if day := _DAY.fullmatch(rest):
        return Piece("day", day[1])
    if role := _ROLE_LINE.match(seen) or _INSTRUCTIONS.match(seen):
        return Piece("role", role[0].strip())
    return _tag(rest, tags)


def _time(line: str) -> str:
    found = re.match(r"\[([^\]]*)\]", line)
    return found[1] if found else ""


def _tag(text: str, tags: Sequence[str]) -> Piece | None:
    if plain := _PLAIN_TAG.match(text):
        return Piece("tag", plain[1])
    if re.match(r"\[\s*tool result cleared", text):
        return Piece("tag", "tool result cleared")
    if found := _TAG.match(text):
        for tag in tags:
            # "[capabilities-list]" is another name
            if re.match(tag.replace(" ", r"[\s_-]+") + r"(?:[_-]*(?![\w-]))", found[2]):
                return Piece("tag", found[1] + tag)
    return None


def _calls(line: str) -> str:
    """Count the calls of an annotation that is written right to its end."""
    whole = _WRITTEN_CALLS.fullmatch(line)
    return str(len(_BETWEEN_CALLS.split(whole[1]))) if whole else "unfinished"


def _of_a_tool(line: str) -> Piece | None:
    """Read a line of `[CAPABILITIES]` that begins as only its lines do."""
    seen = _folded(line).lstrip(" >|")
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
    lines = [_folded(line).strip() for line in text.splitlines()]
    for first, second in pairwise(lines):
        if first.endswith("<") and ">" in second and _ELEMENTS.match(f"<{second}"):
            yield Piece("element", f"<{second}")
        if first.endswith("[") and _REST_OF_TAG.match(second) and (tag := _tag(f"[{second}", tags)):
            yield tag


# --- what a line looks like ------------------------------------------------------------------


def _readings(line: str) -> Iterator[str]:
    """Return a line as it looks, with letters that no screen shows, and with its gaps closed."""
    seen = _folded(line)
    yield seen
    shown = html.unescape(line)
    smuggled = "".join(chr(ord(c) - 0xE0000) if 0xE0020 <= ord(c) <= 0xE007E else c for c in shown)
    if smuggled != shown:
        yield _folded(smuggled.replace("&", "&amp;"))
    if re.search(r"\b\w \w \w \w\b", seen):
        yield re.sub(r"(?<!\w)(\w) (?=\w(?!\w))", r"\1", seen)


@lru_cache(maxsize=4_096)
def _folded(line: str) -> str:
    if line.isascii() and line.isprintable() and "&" not in line:
        return _PLAIN_MARKUP.sub("", line.lower())
    whole = unicodedata.normalize("NFKC", html.unescape(line))
    bare = (c for c in unicodedata.normalize("NFD", whole) if not _is_hidden(c))
    return _PLAIN_MARKUP.sub("", "".join(bare).translate(_ALIKE).casefold().translate(_ALIKE))


_PLAIN_MARKUP: Final = re.compile("[*`~]")


def _is_hidden(char: str) -> bool:
    if char.isspace():
        return char in "\u2006\u2008\u2009\u200a\u202f\u205f"
    return unicodedata.category(char) in {"Cf", "Cc", "Mn", "Me"} or char in "\u115f\u1160\u3164"


def _alike() -> Iterator[tuple[str, str]]:
    """Return letters that look like Latin ones, found by their names."""
    for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
        for name in (
            f"LATIN LETTER SMALL CAPITAL {letter}",
            f"NEGATIVE CIRCLED LATIN CAPITAL LETTER {letter}",
            f"NEGATIVE SQUARED LATIN CAPITAL LETTER {letter}",
            f"REGIONAL INDICATOR SYMBOL LETTER {letter}",
        ):
            yield name, letter
    for names, letters in (
        (
            "CYRILLIC {} LETTER ",
            "A:A IE:E O:O ER:P ES:C HA:X DZE:S JE:J BYELORUSSIAN-UKRAINIAN I:I",
        ),
        ("CYRILLIC CAPITAL LETTER ", "VE:B EM:M EN:H KA:K SHORT U:Y"),
        ("CYRILLIC CAPITAL LETTER T", "E:T"),  # in halves, as codespell takes it for a slip
        ("CYRILLIC SMALL LETTER ", "U:Y SHHA:H KOMI DE:D"),
        ("GREEK CAPITAL LETTER ", "ALPHA:A BETA:B EPSILON:E ETA:H IOTA:I KAPPA:K MU:M NU:N"),
        ("GREEK CAPITAL LETTER ", "OMICRON:O RHO:P TAU:T UPSILON:Y CHI:X ZETA:Z"),
        ("GREEK SMALL LETTER ", "ALPHA:A OMICRON:O IOTA:I RHO:P"),
        ("LISU LETTER ", "A:A BA:B CA:C DA:D E:E FA:F XA:H I:I MA:M NA:N O:O PA:P ZHA:R SA:S"),
        ("LISU LETTER ", "TA:T U:U SHA:X YA:Y"),
    ):
        for pair in re.findall(r"[^:]+:\S", letters):
            name, letter = pair.strip().split(":")
            for case in ("CAPITAL", "SMALL") if "{}" in names else ("",):
                yield names.format(case) + name, letter
    yield from (
        ("LEFT BLACK LENTICULAR BRACKET", "["),
        ("RIGHT BLACK LENTICULAR BRACKET", "]"),
        ("LEFT WHITE SQUARE BRACKET", "["),
        ("RIGHT WHITE SQUARE BRACKET", "]"),
        ("LEFT ANGLE BRACKET", "<"),
        ("RIGHT ANGLE BRACKET", ">"),
        ("SINGLE LEFT-POINTING ANGLE QUOTATION MARK", "<"),
        ("SINGLE RIGHT-POINTING ANGLE QUOTATION MARK", ">"),
        ("DIVISION SLASH", "/"),
        ("RATIO", ":"),
        ("MODIFIER LETTER COLON", ":"),
        ("BRAILLE PATTERN BLANK", " "),
    )


def _table() -> dict[int, str]:
    table = {}
    for name, letter in _alike():
        try:
            table[ord(unicodedata.lookup(name))] = letter
        except KeyError:  # not every letter has every form
            continue
    return table


_ALIKE: Final = _table()
