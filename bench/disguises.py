"""Disguises: spellings of structure that an exact search misses."""

import random
from collections.abc import Callable
from typing import Final

Draw = random.Random
Disguise = Callable[[str, Draw], str]

HIDDEN: Final[tuple[str, ...]] = (
    *"\u200b\u200c\u200d\u2060\ufeff\u00ad\u200e\u200f\u202a\u202e\u2066\u2069\u034f\u061c\u180e",
    *"\ufe0f\u0301\u0336\u20e3\x00\x07\x1b\U000e0001\U000e0041\U000e0100\u3164\u115f\u2009\u200a",
)


def _wide(piece: str, _draw: Draw) -> str:
    return "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in piece)


def _joined_by_hidden(piece: str, draw: Draw) -> str:
    return draw.choice(HIDDEN).join(piece)


def _with_some_hidden(piece: str, draw: Draw) -> str:
    places = range(draw.randint(1, 3))
    for place in (draw.randint(0, len(piece)) for _ in places):
        piece = piece[:place] + draw.choice(HIDDEN) + piece[place:]
    return piece


#: Characters, and what can stand in for each.
_TWINS: Final = {
    twins[0]: twins[1:]
    for twins in (
        *("AАΑꓮ", "EЕΕꓰ", "HНΗꓧ", "MМΜꓟ𐌑", "OОΟꓳ๐੦", "TТΤꓔ", "BВΒꓐ", "CСꓚϹ𐌂", "KКΚ", "NΝꓠ"),
        *("PРΡꓑ", "XХΧꓫ𐌗", "YУΥꓬ", "IІΙ|1", "aа", "eе", "oо", "cс", "pр", "xх", "yу", "iі", "sѕ"),
        *("[【〚「⌈", "]】〛」⌉", "<‹〈◀⪡", ">›〉▶⪢", ":∶꞉︰⁚", "/∕⟋", "|｜│"),
    )
}


def _in_other_letters(piece: str, draw: Draw) -> str:
    share = draw.choice((0.3, 1))
    return "".join(
        draw.choice(_TWINS[char]) if char in _TWINS and draw.random() < share else char
        for char in piece
    )


def _in_other_alphabets(piece: str, draw: Draw) -> str:
    """Write letters bold, circled, squared and so on."""
    first = draw.choice((0x1D400, 0x1D5D4, 0x1D670, 0x24B6, 0x1F130, 0x1F150, 0x1F170, 0x1F1E6))
    return "".join(
        chr(first + ord(c.upper()) - 65) if c.isascii() and c.isalpha() else c for c in piece
    )


def _smuggled(piece: str, _draw: Draw) -> str:
    return "".join(chr(0xE0000 + ord(char)) if " " <= char <= "~" else char for char in piece)


def _as_references(piece: str, draw: Draw) -> str:
    names = {"<": "&lt", ">": "&gt;", "[": "&lsqb;", "]": "&rsqb;", ":": "&colon;", "/": "&sol;"}
    longer = {"<": "&LeftAngleBracket;", "|": "&VerticalLine;", "_": "&UnderBar;", " ": "&nbsp"}
    forms: tuple[Callable[[str], str], ...] = (
        lambda char: names.get(char, char),
        lambda char: longer.get(char, char),
        lambda char: char + draw.choice(("&shy", "&ZeroWidthSpace;", "")),
        lambda char: f"&#{ord(char)};" if char in "<>[]:/_" else char,
        lambda char: f"&#x{ord(char):X};" if char > " " else char,
    )
    return "".join(map(draw.choice(forms), piece))


def _spaced(piece: str, draw: Draw) -> str:
    return draw.choice((" ", "  ", "\u00a0")).join(piece) if "\n" not in piece else piece


def _emphasized(piece: str, draw: Draw) -> str:
    mark = draw.choice(("*", "**", "`", "~~"))
    first, second = sorted(draw.choices(range(len(piece) + 1), k=2))
    return piece[:first] + mark + piece[first:second] + mark + piece[second:]


def _coloured(piece: str, draw: Draw) -> str:
    """Put in what a terminal or a browser shows nothing of."""
    opening, closing = draw.choice(
        (("\x1b[1m", "\x1b[0m"), ("\x1b[31;1m", ""), ("<b>", "</b>"), ("<span class='x'>", ""))
    )
    first, second = sorted(draw.choices(range(len(piece) + 1), k=2))
    return piece[:first] + opening + piece[first:second] + closing + piece[second:]


def _escaped(piece: str, draw: Draw) -> str:
    """Put in backslashes, as if it were escaped already."""
    place = draw.choice((0, 0, 1, draw.randint(0, len(piece))))
    return piece[:place] + "\\" * draw.randint(1, 3) + piece[place:]


def _nested(piece: str, draw: Draw) -> str:
    """Put the piece into itself, so that taking one out would leave another."""
    place = draw.randint(0, len(piece))
    return piece[:place] + piece + piece[place:]


def _cut_off(piece: str, draw: Draw) -> str:
    return piece[: draw.randint(len(piece) // 2, len(piece))]


def _in_brackets(piece: str, draw: Draw) -> str:
    first, last = draw.choice(("[]", "<>", "()", "{}", "``", '""', "【】"))
    return first + piece + last


def _in_case(piece: str, draw: Draw) -> str:
    return draw.choice((str.lower, str.upper, str.title, str.swapcase))(piece)


def _with_other_gaps(piece: str, draw: Draw) -> str:
    return piece.replace("_", draw.choice((" ", "-", "__", "\\_", "")))


DISGUISES: Final[tuple[Disguise, ...]] = (
    _wide,
    _joined_by_hidden,
    _with_some_hidden,
    _in_other_letters,
    _in_other_alphabets,
    _smuggled,
    _as_references,
    _spaced,
    _emphasized,
    _coloured,
    _escaped,
    _nested,
    _cut_off,
    _in_brackets,
    _in_case,
    _with_other_gaps,
)
