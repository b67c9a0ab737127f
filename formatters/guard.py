r"""The guard: no untrusted text can be read as the structure that we write.

A line that could be read as one of our tags, closing tags, speaker lines or annotations gets a
leading backslash, and only such lines. A line that looks like an escaped one gets another, so that
`unquoted` gives back exactly what was there.
"""

import re
from functools import lru_cache
from typing import Final

from formatters.lookalikes import folded

#: Raise with every change to what is escaped: token counts of guarded text are cached under it.
GUARD_VERSION: Final = 1

#: The names that the service keeps for itself.
BUILT_IN_TAGS: Final = frozenset(
    {
        "CORE_IDENTITY",
        "CAPABILITIES",
        "SHARED_MEMORY",
        "FRIENDS_INFO",
        "THIS_MOMENT",
        "RECALLED",
        "SUMMARY",
        "HISTORY",
        "RUN",
        "CONTEXT SUMMARY",
    }
)

#: Those of them that accounts use and messages don't. Only their plain form is escaped: "[ RUN ]"
#: of a log and "[Summary](#summary)" of a document are ordinary text.
_UNPRINTED: Final = frozenset({"SUMMARY", "HISTORY", "RUN"})

#: Every character that some reader takes for the end of a line, with CR LF as one.
_LINE_END: Final = re.compile("(\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029])")

# Every repetition here is possessive or bounded: no text makes a search take more than linear time.

#: What may stand before a line of ours: indentation, escapes, and what Markdown puts first.
_OPEN: Final = r"(?:[\s\\>*_`~|#+=•·–—-]|\d{1,3}[.)])*+"

#: What may stand between its parts.
_GAP: Final = r"[\s\\*_`~|-]*+"

#: What may stand before a name in brackets.
_BRACKET: Final = r"\[[\s\[/\\*_`~|-]*+"

#: The end of a name, so that "[capabilities-list]" is another one.
_END: Final = r"(?![_-]*+[a-z0-9])"

_SPEAKERS: Final = rf"{_OPEN}(?:\[[^\]]{{0,64}}\]++{_GAP})?(?:human|nexus){_GAP}:"

#: Any other name, behind a time exactly as we write it: a log's lines have seconds.
_STRANGERS: Final = (
    rf"{_OPEN}{_BRACKET}(?:unknown\s++time|\d{{4}}-\d\d-\d\d\s++\d\d:\d\d)\s*+\]++"
    rf"{_GAP}[^\s:]{{1,64}}\s*+:"
)

_ANNOTATIONS: Final = rf"{_OPEN}{_BRACKET}tool(?:{_GAP}use\s*+:|{_GAP}result\s++cleared)"

_ACCOUNTS: Final = rf"{_OPEN}\[/?(?:{'|'.join(sorted(_UNPRINTED)).lower()})\](?!\()"

_INPUT_TAGS: Final = rf".*?<[\s/\\]*+(?:human{_GAP}input|current{_GAP}time){_END}"

_HEADINGS: Final = (
    r"[\s\\>*_`~|]*+"
    r"(?:#{1,6}\s|parameters\s*+:\s*+$|[-+]\s.*(?<![a-z0-9_])(?:required|optional)\s*+\))"
)


@lru_cache(maxsize=256)  # requests with blocks of their own bring few distinct sets of tags
def _pattern(tags: frozenset[str], *, headings: bool) -> re.Pattern[str]:
    printed = sorted(BUILT_IN_TAGS - _UNPRINTED | tags)
    names = "|".join(_GAP.join(map(re.escape, re.split("[ _]+", folded(tag)))) for tag in printed)
    tagged = rf"{_OPEN}{_BRACKET}(?:{names}){_END}"
    parts = [tagged, _ACCOUNTS, _SPEAKERS, _STRANGERS, _ANNOTATIONS, _INPUT_TAGS]
    return re.compile("|".join([*parts, *([_HEADINGS] if headings else [])]))


#: No line can be structure without one of these, so most texts are done after one search.
_HINT: Final = re.compile(r"[\[<:#)]|[^\x00-\x7f]")


def quoted(text: str, tags: frozenset[str] = frozenset(), *, headings: bool = False) -> str:
    """Escape the lines that could be read as structure.

    ``tags`` are those of this build besides the built-in ones. ``headings`` also escapes what only
    `[CAPABILITIES]` gives a meaning: tool headings and parameter lines.
    """
    if not _HINT.search(text):
        return text
    pattern = _pattern(tags, headings=headings)
    parts = _LINE_END.split(text)
    parts[::2] = [f"\\{line}" if pattern.match(folded(line)) else line for line in parts[::2]]
    return "".join(parts)


def unquoted(text: str, tags: frozenset[str] = frozenset(), *, headings: bool = False) -> str:
    """Take back what `quoted` did, given the same ``tags`` and ``headings``."""
    pattern = _pattern(tags, headings=headings)
    parts = _LINE_END.split(text)
    parts[::2] = [
        line[1:] if line.startswith("\\") and pattern.match(folded(line)) else line
        for line in parts[::2]
    ]
    return "".join(parts)


def one_line(text: str) -> str:
    """Fold a text onto one line, for places where structure allows no second."""
    return _LINE_END.sub(" ", text)
