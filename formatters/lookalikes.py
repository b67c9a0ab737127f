"""What a line looks like, whichever characters it is made of."""

import unicodedata
from typing import Final

#: Blank or ignored by Unicode's own account, though no category says so.
_UNSEEN: Final = frozenset({0x115F, 0x1160, 0x2065, *range(0xFFF0, 0xFFF9)})
_UNSEEN_PLANE: Final = range(0xE0000, 0xE1000)

#: Controls, formats and marks that stand on other characters.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Mn", "Me"})

#: Characters that look like the ones our structure is made of, and that Unicode does not fold:
#: punctuation, then Cyrillic, Greek, other Latin letters and small capitals.
_LOOKALIKES: Final = str.maketrans(
    "【〔〖〘〚⟦❲⁅⦋】〕〗〙〛⟧❳⁆⦌⟨〈《‹«❬❮❰≪⟪˂ᐸ⟩〉》›»❭❯❱≫⟫˃ᐳ∕⁄╱⧸∶ː꞉˸ˍ‐‒−⠀"
    "АВЕЅІЈКМНОРСТУХавеѕіјкмнорстухԁһӏ"
    "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαεηικορτυχ"
    "ıɑɡᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ",
    "[[[[[[[[[]]]]]]]]]<<<<<<<<<<<<>>>>>>>>>>>>////::::_--- "
    "ABESIJKMHOPCTYXabesijkmhopctyxdhl"
    "ABEZHIKMNOPTYXaenikoptux"
    "iagabcdefghijklmnoprstuvwyz",
)


class _Folds(dict[int, str]):
    """Folded characters by their code; the first ones are remembered."""

    #: Far more than the scripts of one conversation have.
    MOST: Final = 20_000

    def __missing__(self, code: int) -> str:
        folded = _fold(code)
        if len(self) < self.MOST:
            self[code] = folded
        return folded


_FOLDS: Final = _Folds()


def folded(line: str) -> str:
    """Return a line in lower case, look-alikes folded, and without what does not show.

    Each character is folded by itself, which keeps the time linear for any text.
    """
    if line.isascii() and line.isprintable():
        return line.lower()
    return line.translate(_FOLDS)


def _fold(code: int) -> str:
    char = chr(code)
    if char.isspace():
        return " "
    if code in _UNSEEN or code in _UNSEEN_PLANE:
        return ""
    # a few characters stand for whole phrases, which would only lengthen the line
    plain = unicodedata.normalize("NFKD", char)[:4].translate(_LOOKALIKES).casefold()
    seen = (c for c in plain if unicodedata.category(c) not in _HIDDEN and ord(c) not in _UNSEEN)
    return "".join(seen)
