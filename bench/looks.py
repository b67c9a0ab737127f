"""Normalize lines as a tolerant reader sees them; shares no code with the guard."""

import html
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final


def readings(line: str) -> Iterator[str]:
    """Return a line as it looks, with letters that no screen shows, and with its gaps closed."""
    seen = folded(line)
    yield seen
    shown = html.unescape(line)
    smuggled = "".join(chr(ord(c) - 0xE0000) if 0xE0020 <= ord(c) <= 0xE007E else c for c in shown)
    if smuggled != shown:
        yield folded(smuggled.replace("&", "&amp;"))
    if _CODES.search(line):
        bare = "".join(map(html.unescape, _CODES.split(line)))
        yield folded(bare.replace("&", "&amp;"))
    if re.search(r"\b\w \w \w \w\b", seen):
        yield re.sub(r"(?<!\w)(\w) (?=\w(?!\w))", r"\1", seen)


@lru_cache(maxsize=4_096)
def folded(line: str) -> str:
    """Return a line in small letters, look-alikes plain, without markup and what is hidden."""
    if line.isascii() and line.isprintable() and "&" not in line:
        return _PLAIN_MARKUP.sub("", line.lower())
    whole = unicodedata.normalize("NFKC", html.unescape(line).translate(_ALIKE))
    bare = (c for c in unicodedata.normalize("NFD", whole) if not _is_hidden(c))
    return _PLAIN_MARKUP.sub("", "".join(bare).translate(_ALIKE).casefold().translate(_ALIKE))


_PLAIN_MARKUP: Final = re.compile("[*`~]")

#: Colours of a terminal, and HTML's emphasis and comments, and tags in the middle of words.
_CODES: Final = re.compile(
    r"(?:\x1b\[|\x9b)[\d;]*[a-z]|</?b>|<!--|(?<=\w)</?span(?:\s[^<>]*)?>(?=\w)", re.IGNORECASE
)


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
        ("GREEK CAPITAL LUNATE SIGMA ", "SYMBOL:C"),
        ("OLD ITALIC LETTER ", "KE:C EKS:X SHE:M"),
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
        ("LEFT CORNER BRACKET", "["),
        ("RIGHT CORNER BRACKET", "]"),
        ("LEFT CEILING", "["),
        ("RIGHT CEILING", "]"),
        ("BLACK LEFT-POINTING TRIANGLE", "<"),
        ("BLACK RIGHT-POINTING TRIANGLE", ">"),
        ("TWO DOT PUNCTUATION", ":"),
        ("PRESENTATION FORM FOR VERTICAL TWO DOT LEADER", ":"),
        ("BOX DRAWINGS LIGHT VERTICAL", "|"),
        ("GURMUKHI DIGIT ZERO", "O"),
        ("THAI DIGIT ZERO", "O"),
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
