"""What a line looks like, whichever characters it is made of."""

import html
import re
import unicodedata
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html.entities import html5
from typing import Final

#: Letters of other scripts, small capitals and the like, by the letter that they look like, and
#: that Unicode does not fold. Only letters that can pass unnoticed in a word are here.
LETTERS: Final = {
    "a": "АаΑαɑᴀᎪꓮᗅ⍺𐊠𖽀",
    "b": "ВЬΒʙᏴᏏꓐᗷᖯᑲƄꞴ𐊂𐊡𐌁",
    "c": "СсᴄᏟꓚϹϲⲤⲥς𐊢𐌂𐐕𐐽𐔜𑣩𑣲🝌",
    "d": "ԁᴅᎠᏧꓓԃᗞᗪꓒᑯ",
    "e": "ЕеΕεᴇᎬꓰҽ℮ꬲⴹ⋿𐊆𑢦𑢮",
    "f": "ꜰϜϝꓝƒքᖴꞘꞙꬵ𐊇𐊥𐔥𑢢𑣂𝈓",
    "g": "ɡɢԌԍᏀꓖցƍᏳᶃ",
    "h": "НһΗʜհᎻᏂꓧⲎⲏᕼ𐋏",
    "i": "ІіΙιıɪᎥꓲᛁⵏ⍳ꙇƖɩ˛۱Ⲓ𐊊𐌉𐌠𑣃𖼨",
    "j": "ЈјϳᴊᎫꓙᒍꞲ",
    "k": "КкΚκᴋᏦꓗⲔᛕ𐔘",
    "l": "ӏʟᏞꓡᒪⳐ⏽𐐛𐔦𑢣𑢲𖼖𝈪",
    "m": "МмΜᴍᎷꓟⲘⲙᗰϺᛖ𐊰𐌑",
    "n": "ΝɴηոռꓠⲚⲛᴎ𐔓",
    "o": "ОоΟοσᴏօՕꓳⲞⲟ০୦〇߀ዐଠ०۵੦૦௦౦೦൦๐໐ംഠဝ၀ჿᴑⵔꬽ𐊒𐊫𐐄𐐬𐓂𐓪𐔖𑓐𑢵𑣈𑣗𑣠",
    "p": "РрΡρᴘᏢꓑⲢⲣᑭ⍴𐊕",
    "q": "ԛԚզգⵕ",
    "r": "ʀᎡᏒꓣᴦгᖇꭇꭈⲅꮁ𐒴𖼵𝈖",
    "s": "ЅѕꜱᏕᏚꓢՏƽ𐊖𐐠𐑈𑣁𖼺",
    "t": "ТтΤτᴛᎢꓔⲦⲧ⊤⟙𐊗𐊱𐌕𑢼𖼊🝨",
    "u": "υսՍᴜꓴʋᑌ∪ሀꞟꭎ⋃ꭒ𐓎𐓶𑢸𑣘𖽂",
    "v": "νᴠѵѴᏙꓦᐯ۷∨⋁ⴸꛟ𐔝𑜆𑢠𑣀𖼈𝈍",
    "w": "ᴡԝԜᎳᏔꓪѡɯա𑜊𑜎𑜏𑣦𑣯",
    "x": "ХхΧχꓫⲬⲭ᙭×╳ᕁᕽ᙮ᚷ⤫⤬⨯ⵝꞳ𐊐𐊴𐌗𐌢𐔧𑣬",
    "y": "УуΥʏүγꓬⲨⲩᎩꭚყɣᎽᶌỿ𐊲𑢤𑣜𖽃",
    "z": "ΖᴢᏃꓜⲌⲍ𐋵𑢩𑣄𑣥",
    "[": "【〔〖〘〚⟦❲⁅⦋⟬「『⌈⌊⎡⎣⸢⸤⦃⦗⟅⧘",
    "]": "】〕〗〙〛⟧❳⁆⦌⟭」』⌉⌋⎤⎦⸣⸥⦄⦘⟆⧙",
    "<": "⟨〈《‹«❬❮❰≪⟪˂ᐸᚲ⋖⪡⧼◁◀◄⊲≺˱𝈶ᐊ⮜⯇",
    ">": "⟩〉》›»❭❯❱≫⟫˃ᐳ𖼿⋗⪢⧽▷▶►⊳≻˲𝈷ᐅ⮞⯈",
    "/": "∕⁄╱⧸᜵⁁⟋Ⳇ〳ノ㇓丿𝈺",
    ":": "∶ː꞉˸։᛬ꓽः᠃᠉⁚⁝⦂︰︙⁞",
    "|": "│┃∣ǀ❘❙¦⏽║",
    "_": "ˍ‿⁀﹍﹎﹏",
    "-": "‐‒−",
    " ": "⠀",
}
LOOKALIKES: Final = {ord(char): plain for plain, chars in LETTERS.items() for char in chars}

#: Signs that can be read as a letter, and as a sign as well.
SIGNS: Final = frozenset(
    code for code, plain in LOOKALIKES.items() if plain.isalpha() and not chr(code).isalnum()
)

#: Blank or ignored by Unicode's own account, though no category says so.
_UNSEEN: Final = frozenset({0x115F, 0x1160, 0x2065, *range(0xFFF0, 0xFFF9)})
_UNSEEN_PLANE: Final = range(0xE0000, 0xE1000)

#: Blanks so thin that a word with them between its letters is still read as one.
_THIN: Final = frozenset({0x2006, 0x2008, 0x2009, 0x200A, 0x202F, 0x205F})

#: What Markdown leaves out of the text that it shows: emphasis, code marks and escapes.
_MARKUP: Final = frozenset(map(ord, "*`~\\"))

#: In each width, and smuggled.
_BACKSLASH: Final = re.compile("[\\\\＼﹨\U000e005c]")

#: Controls, formats and marks that stand on other characters.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Mn", "Me"})

#: White letters on black, and flags' letters: 26 each, from A on.
_ENCLOSED: Final = (0x1F150, 0x1F170, 0x1F1E6)

#: Letters that no screen shows and that models read all the same.
_SMUGGLED: Final = {0xE0000 + code: chr(code) for code in range(0x20, 0x7F)}

#: Names of characters that HTML takes without a semicolon too.
_ENDLESS: Final = sorted((name for name in html5 if not name.endswith(";")), key=len)[::-1]

#: A character as HTML writes it; as there, the semicolon is not always needed.
_REFERENCE: Final = (
    r"&(?:#\d{1,30};?|#[xX][0-9a-fA-F]{1,30};?|[a-zA-Z][a-zA-Z0-9]{1,31};|"
    rf"{'|'.join(_ENDLESS)})"
)

#: What gives a terminal's text or HTML's its look, of which nothing is shown itself: colours and
#: emphasis, and in the middle of words all else that HTML has. Backslashes in it are nothing, so
#: that it is still found in what the guard wrote.
_CODE: Final = (
    r"(?:\x1b\\*+\[|\x9b)[0-9:;?\\]*+[A-Za-z]"
    r"|(?i:<\\*+/?(?:[biqu]|em|strong|small|big|mark|del|ins|su[bp]|font|code|tt|kbd)"
    r"(?:\s[^<>]*+)?/?>)|(?<=\w)<\\*+/?(?i:a|p|[bh]r|div|span|li|t[dhr]|h[1-6])(?:\s[^<>]*+)?/?>(?=\w)"
    r"|<\\*+!--|-->"
)
_CODES: Final = re.compile(_CODE)

#: All that a line is made of, with codes as what they are written with, and as nothing.
_UNITS: Final = re.compile(f"{_REFERENCE}|.", re.DOTALL)
_SHOWN_UNITS: Final = re.compile(f"{_CODE}|{_REFERENCE}|.", re.DOTALL)

#: Stands in every "H u m a n", and seldom elsewhere; then the blanks in it, each between letters
#: that stand alone.
_SPACED: Final = re.compile(r"\s\w\s{1,4}\w\s")
_SPACING: Final = re.compile(r"\s(?:(?<=^\w\s)|(?<=\W\w\s))\s{0,3}(?=\w(?!\w))")

#: What stands before the first letter.
_NO_LETTERS: Final = re.compile(r"[\W\d_]*+")

#: All that the edges of our structure can be made of, in every spelling; a line without one has
#: no structure, and most lines have none.
HINT: Final = re.compile(
    r"[\[\]<>:#&"
    + "".join(LETTERS[mark] for mark in "[]<>:")
    + "︓﹕：𐞁﹟＃﹠＆≮\u2329︽︿﹤＜≯\u232a︾﹀﹥＞︗︹︻﹇﹝［︘︺︼﹈﹞］"
    + "﹁﹂﹃﹄｢｣⊀⊁⋪⋫\U000e0020-\U000e007e]"
)


@dataclass(frozen=True, slots=True)
class Look:
    """A reading of a line."""

    text: str
    #: For each character of the text, where in the line the character that shows it ends.
    ends: Sequence[int]


class _Folds(dict[int, str | None]):
    """Folded characters by their code: those that are given, and the last ones that were met."""

    #: Far more than the scripts of one conversation have.
    MOST: Final = 20_000

    def __init__(self, given: Mapping[int, str]) -> None:
        super().__init__(given)
        self._given = given

    def __missing__(self, code: int) -> str | None:
        if len(self) >= self.MOST:
            # all at once: else whoever fills it makes everyone's other characters slow for good
            self.clear()
            self.update(self._given)
        # None and not "", with which translating ASCII takes its slow way
        self[code] = folded = _fold(code) or None
        return folded


_FOLDS: Final = _Folds({})


def folded(line: str) -> str:
    """Return a line in lower case, look-alikes folded, without markup and what does not show.

    Each character is folded by itself, which keeps the time linear for any text; backslashes fold
    to nothing.
    """
    return _resolved(line).translate(_FOLDS)


def readings(line: str) -> Iterator[str]:
    """Return all that a line could be read as; most lines have one reading."""
    for units in _ways(line):
        resolved = _resolved(line, units)
        for folds in _tables(resolved):
            text = resolved.translate(folds)
            yield text
            for left in _without_gaps(text):
                yield "".join(text[place] for place in left)


def parted_readings(line: str) -> Iterator[str]:
    r"""Return the readings in which a backslash ends a word, as in "[THIS_MOMENT\s]", if any."""
    if "\\" not in line and "&" not in line and line.isascii():
        return
    resolved = _resolved(line)
    if _BACKSLASH.search(resolved):
        yield from readings(_BACKSLASH.sub(" ", resolved))


def looks(line: str) -> Iterator[Look]:
    """Return the same readings with the places that they were read at, which takes longer."""
    for units in _ways(line):
        for folds in _tables(_resolved(line, units)):
            look = _look(line, units, folds)
            yield look
            for left in _without_gaps(look.text):
                yield Look("".join(look.text[p] for p in left), [look.ends[p] for p in left])


def escaped(text: str, marks: frozenset[str]) -> str:
    """Put a backslash before whatever looks like one of some marks.

    Backslashes before it, and those at the end, are doubled, so that they escape nothing.
    """
    if text.isascii() and marks.isdisjoint(text) and "\\" not in text and "&" not in text:
        return text
    shown = held = ""
    for unit in _UNITS.findall(text):
        look = _unit_folded(unit, _FOLDS)
        # a backslash, or what doesn't part it from what is next
        if not look and marks.isdisjoint(unit):
            held += unit
            continue
        if not marks.isdisjoint(look):
            held = held.replace("\\", "\\\\") + "\\"
        # a reference is text as well
        as_text = (f"\\{char}" if char in marks else char for char in unit)
        shown += held + (unit if len(unit) == 1 else "".join(as_text))
        held = ""
    return shown + held.replace("\\", "\\\\")


def _ways(line: str) -> Iterator[re.Pattern[str]]:
    """Return what a line can be taken apart by: with codes in it, also as it is shown."""
    yield _UNITS
    # most lines have none of these, which is found out at once
    if ("<" in line or "\x1b" in line or "\x9b" in line) and _CODES.search(line):
        yield _SHOWN_UNITS


def _look(line: str, units: re.Pattern[str], folds: "_Folds") -> Look:
    pieces: list[str] = []
    ends = array("Q")
    for unit in units.finditer(line):
        pieces.append(_unit_folded(unit[0], folds))
        ends.extend([unit.end()] * len(pieces[-1]))
    return Look("".join(pieces), ends)


def _unit_folded(unit: str, folds: "_Folds") -> str:
    if len(unit) == 1:
        return folds[ord(unit)] or ""
    return _resolved_unit(unit).translate(folds)


def _tables(resolved: str) -> Iterator["_Folds"]:
    """Return the folds in which what hardly shows is nothing, and if needed those where it is."""
    yield _FOLDS
    if not resolved.isascii():
        for kinds, folds in _OTHER_FOLDS:
            if all(kind.search(resolved) for kind in kinds):
                yield folds


def _resolved(line: str, units: re.Pattern[str] = _UNITS) -> str:
    if units is _UNITS and "&" not in line:
        return line
    return "".join(map(_resolved_unit, units.findall(line)))


def _resolved_unit(unit: str) -> str:
    if len(unit) == 1:
        return unit
    return html.unescape(unit) if unit.startswith("&") else ""


def _without_gaps(text: str) -> Iterator[list[int]]:
    """Return the places that are left without the blanks in "H u m a n", if there are such.

    Once without all of them, once without the narrowest: those between words may be wider. A digit
    before them may be a letter of the word, or the number of the line.
    """
    if not _SPACED.search(text):
        return
    gaps = list(_SPACING.finditer(text))
    narrowest = min(len(gap[0]) for gap in gaps)
    for begin in sorted({0, _behind_numbers(text)}):
        for widest in sorted({4, narrowest}):
            taken = (gap for gap in gaps if gap.start() >= begin and len(gap[0]) <= widest)
            blanks = {place for gap in taken for place in range(*gap.span())}
            yield [place for place in range(len(text)) if place not in blanks]


def _behind_numbers(text: str) -> int:
    """Return where the blank behind the numbers ends that a line begins with; 0 without any."""
    found = _NO_LETTERS.match(text)
    before = found[0] if found else ""
    return len(before) if before.rstrip()[-1:].isdigit() else 0


def _fold(code: int) -> str:
    char = chr(code)
    if code in _MARKUP or code in _THIN or code in _UNSEEN or code in _UNSEEN_PLANE:
        return ""
    if char.isspace():
        return " "
    for first in _ENCLOSED:
        if first <= code < first + 26:
            return chr(ord("a") + code - first)
    # what it looks like goes before what Unicode takes it for: "Ϲ" is a sigma there; and a few
    # characters stand for whole phrases, which would only lengthen the line
    shown = char.translate(LOOKALIKES)
    plain = unicodedata.normalize("NFKD", shown)[:4].translate(LOOKALIKES)
    # capitals of other scripts look like other letters than their small ones do
    plain = plain.casefold().translate(LOOKALIKES)
    unseen = _UNSEEN | _MARKUP
    seen = [c for c in plain if unicodedata.category(c) not in _HIDDEN and ord(c) not in unseen]
    # a mark has a character of its own, so that there is a place behind it
    return "".join(c for c in seen if len(seen) == 1 or c.isalnum() or c in " .)")


def _shown(codes: Mapping[int, str]) -> _Folds:
    """Return the folds in which these characters are what they stand for."""
    return _Folds({code: _fold(ord(seen)) for code, seen in codes.items()})


_WIDE: Final = dict.fromkeys(_THIN, " ")
_SOME_SMUGGLED: Final = re.compile(f"[{''.join(map(chr, _SMUGGLED))}]")
_SOME_THIN: Final = re.compile(f"[{''.join(map(chr, _THIN))}]")
_SOME_SIGNS: Final = re.compile(f"[{''.join(map(chr, SIGNS))}]")

#: What else a line can be read as, by the characters that all have to be in it.
_OTHER_FOLDS: Final = (
    ((_SOME_SMUGGLED,), _shown(_SMUGGLED)),
    ((_SOME_THIN,), _shown(_WIDE)),
    ((_SOME_SMUGGLED, _SOME_THIN), _shown({**_SMUGGLED, **_WIDE})),
    ((_SOME_SIGNS,), _shown(dict.fromkeys(SIGNS, " "))),
)
