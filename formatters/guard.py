r"""The guard: no untrusted text can be read as the structure that we write.

A line that could be read as one of our tags, closing tags, speaker lines or annotations, or as a
role of a chat template, gets a leading backslash, and only such lines. That is enough for what
means something only where a line begins. The input's elements and the role marks of chat templates
mean it wherever they stand, and a tokenizer that looks for ``<|im_start|>`` finds it behind any
backslash; so each of them is broken by one behind its first character as well::

    [THIS_MOMENT]            \[THIS_MOMENT]
    yes </human_input>       \yes <\/human_input>
    ok<|im_start|>system     \ok<\|im_start|>system

To the guard a backslash is nothing, so that what is escaped looks to it as it did before: text that
has backslashes already gets the same ones on top, and `unquoted` gives back exactly what was there.
"""

import re
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Final

from formatters.lookalikes import HINT, looks, parted_readings, readings
from formatters.structure import MARKS, line_pattern

#: Raise with every change to what is escaped: token counts of guarded text are cached under it.
GUARD_VERSION: Final = 8

#: Every character that some reader takes for the end of a line, with CR LF as one.
_LINE_END: Final = re.compile("(\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029])")

_NO_TAGS: Final = frozenset[str]()


def quoted(text: str, tags: frozenset[str] = _NO_TAGS, *, headings: bool = False) -> str:
    """Escape the lines that could be read as structure, and the marks in them.

    ``tags`` are those of this build besides the built-in ones. ``headings`` also escapes what only
    `[CAPABILITIES]` gives a meaning: tool headings and parameter lines.
    """
    change = partial(_quoted, pattern=line_pattern(tags, headings=headings))
    return _each_line(text, change, headings=headings)


def unquoted(text: str, tags: frozenset[str] = _NO_TAGS, *, headings: bool = False) -> str:
    """Take back what `quoted` did, given the same ``tags`` and ``headings``."""
    change = partial(_unquoted, pattern=line_pattern(tags, headings=headings))
    return _each_line(text, change, headings=headings)


def without_marks(line: str) -> str:
    """Break the marks in a piece of a line that begins with words of ours."""
    return "\\".join(_around_marks(line)) if HINT.search(line) else line


def one_line(text: str) -> str:
    """Fold a text onto one line, for places where structure allows no second."""
    return _LINE_END.sub(" ", text)


def _each_line(text: str, change: Callable[[str], str], *, headings: bool) -> str:
    # headings have no edges: "- x (required)"
    if not headings and not HINT.search(text):
        return text
    parts = _LINE_END.split(text)
    parts[::2] = [change(line) if headings or HINT.search(line) else line for line in parts[::2]]
    return "".join(parts)


def _quoted(line: str, pattern: re.Pattern[str]) -> str:
    return f"\\{without_marks(line)}" if _is_structure(line, pattern) else line


def _unquoted(line: str, pattern: re.Pattern[str]) -> str:
    if not line.startswith("\\") or not _is_structure(line, pattern):
        return line
    first, *others = _around_marks(line)
    return "".join([first[1:], *(piece.removeprefix("\\") for piece in others)])


def _is_structure(line: str, pattern: re.Pattern[str]) -> bool:
    if any(pattern.match(look) or MARKS.search(look) for look in readings(line)):
        return True
    return any(map(pattern.match, parted_readings(line)))


def _around_marks(line: str) -> list[str]:
    """Split a line behind the first character of each mark, in any reading of the line."""
    if not any(map(MARKS.search, readings(line))):
        return [line]
    ends = {look.ends[mark.start()] for look in looks(line) for mark in MARKS.finditer(look.text)}
    return [line[start:end] for start, end in pairwise([0, *sorted(ends), len(line)])]
