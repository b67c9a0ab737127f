r"""The guard: no line that we didn't write begins as a line of ours does.

It looks for nothing, and so nothing can be disguised from it. In a block, a recalled row or a
summary, a stranger's line is bare only if it is *plain*: made of letters and digits of named
scripts, marks on them, blanks and the signs of sentences, and beginning with a letter or a digit.
Any other line begins with the gutter, two characters that begin no plain line::

    Hello, how are you?             Hello, how are you?
    [THIS_MOMENT]                   | [THIS_MOMENT]
    | x                             | | x

Only how a line begins has a meaning in our structure, so that its middle may hold anything. The
first line of a printed row follows words of ours, and stays as it is. Native messages get no
gutter: APIs part them by their roles, and our tags have no meaning in them. The tokens of
chat templates have a meaning wherever they are: `formatters.role_marks` breaks them.
"""

import json
import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from itertools import chain, pairwise
from typing import Final

from formatters.role_marks import family_of, find_tokens

#: Raise with every change to what is guarded: reports of builds name it.
GUARD_VERSION: Final = 11

#: Texts whose guarded form is cached, since most of a context's rows are in the next one too; and
#: the characters of the longest such text.
CACHED_TEXTS: Final = 4_096
CACHED_CHARS: Final = 2_000


class Place(StrEnum):
    """Where a text is printed, which decides which of its lines a reader could take for ours."""

    #: On lines of its own, such as a profile or a description.
    BLOCK = "block"
    #: After words of ours on the same line, such as "Human: ".
    ROW = "row"


#: Scripts whose characters are plain by their category: Latin, Greek, Cyrillic, Armenian, Hebrew,
#: Arabic, Thaana, the scripts of India, Thai, Lao, Tibetan, Burmese, Georgian, Ethiopic, Khmer,
#: Mongolian, and Japan's and Taiwan's syllables with their other widths.
_SCRIPTS: Final = (
    *((0x41, 0x24F), (0x300, 0x34E), (0x350, 0x36F), (0x370, 0x52F), (0x531, 0x6FF)),
    *((0x750, 0x7BF), (0x900, 0x109F), (0x10A0, 0x10FF), (0x1200, 0x137F), (0x1780, 0x17B3)),
    *((0x17B6, 0x17FF), (0x1810, 0x18AA), (0x1C90, 0x1CBF), (0x1E00, 0x1FFF), (0x3005, 0x3006)),
    *((0x3041, 0x312F), (0x3131, 0x3162), (0x3165, 0x318E), (0x31A0, 0x31FF)),
    *((0xFF10, 0xFF19), (0xFF21, 0xFF3A), (0xFF41, 0xFF5A), (0xFF66, 0xFF9F)),
)
#: Han and Hangul, which are letters throughout.
_WHOLE: Final = (
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufa6d\ufa70-\ufad9"
    "\U00020000-\U0002a6df\U0002a700-\U0002b738\U0002b740-\U0002b81d\U0002b820-\U0002cea1"
)
#: Letters that look like signs, or stand for a blank and more: clicks, and those that Unicode
#: replaces by signs where it looks for equal texts.
_NOT_PLAIN: Final = frozenset(map(ord, "ǀǁǂǃĿŀŉʹͺẚ"))

_SIGNS: Final = (
    ",.;!?'\"()"
    r"’‘‚“”„«»…¿¡‐‑‒–—―\-"  # typographic
    "、。，．；！？（）｡､・《》「」『』"  # CJK
    "،؛؟۔״׳־।॥።၊။។"  # Arabic, Hebrew, Indic, Ethiopic, Burmese, Khmer
)
_BLANKS: Final = " \t\u00a0\u2000-\u200a\u202f\u205f\u3000"
_JOINERS: Final = "\u200c\u200d"


def _ranges(*categories: str) -> str:
    """Return the characters of `_SCRIPTS` in some categories, as ranges of a pattern's set."""
    codes = chain.from_iterable(range(first, last + 1) for first, last in _SCRIPTS)
    found = [c for c in codes if unicodedata.category(chr(c)) in categories and c not in _NOT_PLAIN]
    firsts = (code for before, code in pairwise([-1, *found]) if code != before + 1)
    lasts = (code for code, after in pairwise([*found, -1]) if after != code + 1)
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in zip(firsts, lasts, strict=True))


_LETTER: Final = _WHOLE + _ranges("Lu", "Ll", "Lt", "Lm", "Lo", "Nd") + "0-9"
_MARK: Final = _ranges("Mn", "Mc")

# Every repetition here is possessive: no text takes more than linear time.

#: Letters that are of Europe or the Near East, or their wide forms.
_WEST: Final = "\0-\u08ff\u1e00-\u1fff\uff00-\uff5a"

#: A mark belongs to the letter before it, and one of India's scripts, such as the visarga that
#: looks like a colon, to a letter of these; a joiner is between two letters of a word.
_PLAIN: Final = (
    rf"[{_LETTER}](?:[{_LETTER}{_BLANKS}{_SIGNS}]++"
    rf"|(?<=[{_LETTER}{_MARK}])"
    rf"(?:(?:(?<![{_WEST}])|(?![\u0900-\u1fff]))[{_MARK}]|[{_JOINERS}](?=[{_LETTER}])))*+"
)
#: The end of a line before one that gets the gutter. Three dots don't: they show where passages
#: leave text out.
_NOT_BARE: Final = re.compile(rf"\n(?!(?:{_PLAIN}|\.\.\.|[{_BLANKS}]++)?+(?![^\n]))")

#: Every character that some reader takes for the end of a line, with CR LF as one.
_LINE_END: Final = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
#: Controls, and formats that nobody sees. Arabic has formats that are seen.
_UNSEEN: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e-\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e007f"
)
_ODD: Final = re.compile(f"[{_UNSEEN}\u2028\u2029{_JOINERS}]")
_DROPPED: Final = re.compile(f"[{_UNSEEN}]++")
_OUTSIDE_WORDS: Final = re.compile(
    rf"(?<!\S)[{_JOINERS}]++|[{_JOINERS}]++(?!\S)|(?<=[{_JOINERS}])[{_JOINERS}]++"
)


def normalize(text: str) -> str:
    """Return a text with line ends as newlines, and without what doesn't show.

    Joiners stay between two characters, where they form a word's letters or an emoji.
    """
    if not _ODD.search(text):
        return text
    return _OUTSIDE_WORDS.sub("", _DROPPED.sub("", _LINE_END.sub("\n", text)))


def one_line(text: str) -> str:
    """Fold a text onto one line, for places where structure allows no second."""
    return normalize(text).replace("\n", " ")


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """The protection of a context from the texts of others."""

    #: Of `find_tokens`; None to break none.
    tokens: re.Pattern[str] | None
    #: Whether printed lines that aren't plain get the gutter.
    gutter: bool = True

    def quote(self, text: str, place: Place = Place.BLOCK) -> str:
        """Return a text as it is printed: normalized, special tokens broken, with the gutter."""
        if not self.gutter:
            return self.shatter(text)
        quote = _quote_cached if len(text) <= CACHED_CHARS else _quote
        return quote(self, text, place)

    def unquote(self, text: str, place: Place = Place.BLOCK) -> str:
        """Return a text without the guard's ``| `` marks; other changes of the guard remain."""
        if self.gutter:
            before = "" if place is Place.ROW else "\n"
            text = f"{before}{text}".replace("\n| ", "\n").removeprefix(before)
        if self.tokens is None:
            return text
        return re.sub(rf"({self.tokens.pattern})\\", r"\1", text)

    def shatter(self, text: str) -> str:
        """Return a text with the special tokens in it broken, as native messages have it."""
        # most texts have none, and a search costs less than a substitution
        if self.tokens is None or not self.tokens.search(text):
            return text
        return self.tokens.sub(lambda first: f"{first[0]}\\", text)  # faster than a template

    def finds_token(self, text: str) -> bool:
        """Return whether a text has a special token that isn't broken."""
        if self.tokens is None:
            return False
        return any(not text.startswith("\\", found.end()) for found in self.tokens.finditer(text))

    def shatter_json(self, text: str) -> str:
        """Return JSON with the special tokens in its strings broken, however they are escaped."""
        if self.tokens is None:
            return text
        broken = _JSON_PARTS.sub(self._shatter_part, text)
        # parts end at its quotation mark in what is no JSON; in JSON it is escaped
        return broken.replace(_QUOTED_SIGN, f"<\\{_QUOTED_SIGN[1:]}")

    def _shatter_part(self, part: re.Match[str]) -> str:
        if part[1]:  # nothing is escaped but the backslashes that are inserted
            return self.shatter(part[0]).replace("\\", "\\\\")
        try:
            string, _ = _DECODER.raw_decode(part[0])
        except ValueError:  # arguments of in-process callers may be no JSON
            return self.shatter(part[0])
        broken = self.shatter(string)
        return part[0] if broken == string else json.dumps(broken)


def _quote(guard: Guard, text: str, place: Place) -> str:
    text = guard.shatter(normalize(text))
    before = "" if place is Place.ROW else "\n"
    return _NOT_BARE.sub("\n| ", f"{before}{text}").removeprefix(before)


_quote_cached: Final = lru_cache(CACHED_TEXTS)(_quote)


#: A part of JSON without a backslash, or a string with one. A string without an end goes on to that
#: of the text, so that no text takes more than linear time.
_JSON_PARTS: Final = re.compile(
    r'((?:[^"\\]++|"[^"\\]*+")++)|"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL
)

#: The only token with a quotation mark.
_QUOTED_SIGN: Final = '<|"|>'

#: Accepts line ends in strings.
_DECODER: Final = json.JSONDecoder(strict=False)

#: Breaks the special tokens of all families of models.
GUARD: Final = Guard(find_tokens())
#: Changes nothing.
OFF: Final = Guard(None, gutter=False)

#: For texts outside a build.
quoted: Final = GUARD.quote
unquoted: Final = GUARD.unquote


@cache
def guard_for(model: str | None, *, gutter: bool = True, role_marks: bool = True) -> Guard:
    """Return the guard of a model, which breaks the tokens of all models if its family is unknown.

    Without ``role_marks`` no token is broken, and without ``gutter`` no line gets it.
    """
    if not role_marks:
        return Guard(None) if gutter else OFF
    family = family_of(model) if model else None
    return Guard(find_tokens(family), gutter) if family or not gutter else GUARD
