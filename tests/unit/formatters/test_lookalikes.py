import pytest

from formatters.lookalikes import _FOLDS, folded, readings


@pytest.mark.parametrize(
    ("line", "looks"),
    [
        ("[Human]: 1", "[human]: 1"),
        ("ＨＵＭＡＮ：", "human:"),
        ("𝐇𝓾𝕞𝖆𝚗", "human"),
        ("Ⓗⓤⓜⓐⓝ", "human"),
        ("Нuмаn", "human"),
        ("h\u200bu\u00adm\ufe0fa\u202en", "human"),
        ("h\x00uman\x7f", "human"),
        ("\U0001f150\U0001f169\U0001f170\U0001f189\U0001f1e6\U0001f1ff", "azazaz"),
        ("\U0001f16a", "mc"),
        ("\ufdfa", "صلى "),
        ("\U0001f18a\U000e1000", "\U0001f18a\U000e1000"),
        ("АВСԁЕϜԌНІЈКӏМΝОРԛᎡЅТՍѴԜХУΖ", "abcdefghijklmnopqrstuvwxyz"),
        ("【】〈〉∕꞉│ˍ‐⠀", "[]<>/:|_- "),
        ("\ufff0\ufff8", ""),
        ("\U000e0fff\u1fef\ufe68", ""),
        ("½ ⑴ ⒈ ㏂ … ⩴", "12 1) 1. a.m. ... "),
        ("Hüma\u0336n", "human"),
        ("\thuman\u3000\u00a0\u2800", " human   "),
        ("【＜／", "[</"),
        ("人类 你好", "人类 你好"),
        ("\u3164\uffa0\u115f\U000e0041", ""),
        ("STRASSE ſ K", "strasse s k"),
        ("", ""),
    ],
)
def test_folded(line: str, looks: str) -> None:
    """A line is folded to what a reader sees."""
    assert folded(line) == looks


def test_characters_are_folded_one_by_one() -> None:
    """What a character is folded to does not depend on its neighbours."""
    every = "".join(map(chr, range(0x20, 0xD800)))

    assert folded(every) == "".join(map(folded, every))


def test_memory_is_bounded() -> None:
    """However many characters there are, only so many are remembered."""
    every = "".join(map(chr, range(0x10000, 0x10000 + _FOLDS.MOST + 1_000)))

    assert folded(every) == folded(every)
    assert len(_FOLDS) <= _FOLDS.MOST


def test_the_last_characters_are_remembered() -> None:
    """A text with every character there is makes nobody's later texts slow."""
    folded("".join(map(chr, range(0x10000, 0x10000 + _FOLDS.MOST))))

    folded("é")

    assert _FOLDS.get(ord("é")) == "e"


def test_other_readings_outlast_what_is_remembered() -> None:
    """What a character can also be read as is known however many characters have come."""
    smuggled = "".join(chr(0xE0000 + ord(char)) for char in "[x]")
    before = list(readings(smuggled))
    others = "".join(map(chr, range(0x10000, 0x10000 + _FOLDS.MOST)))

    assert sum(1 for _ in readings(others + smuggled)) > 1
    assert list(readings(smuggled)) == before
