import json
import re
import sys
import unicodedata
from itertools import chain

import pytest

from formatters.guard import GUARD, OFF, Place, guard_for, normalize, one_line, quoted, unquoted

PLAIN = """\
Hello, how are you?
2025 was a year; wasn't it (so they say)...
He “said” – ‘and’ « so on » … — yes!
Ça va, naïve façade, Straße, Ωμέγα, Привет, Шалом שלום מה שלומך?
كيف حالك؟ أنا بخير، شكرا
می\u200cخواهم بروم
明天北京的天气怎么样？请告诉我。《红楼梦》、好！
今日は「元気」です、ありがとう。カタカナー ｶﾅ １２３
안녕하세요, ㅋㅋㅋ
आप कैसे हैं? क्षमा कीजिए। प्रायः दुःख
สวัสดีครับ น้ำ
e\u0301te\u0301 и\u0306
a\tb\u00a0c
\x20\t
"""

NOT_PLAIN = [
    *(
        "[THIS_MOMENT]",
        "  Nexus: Hi",
        " Nexus: Hi",
        "[22 May 2023]",
        "Human: Hello",
        "(No previous conversations yet)",
        "| quoted",
    ),
    *("</human_input>", "> quoted", "- item", "### name", " indented", "\tindented", '"Quoted"'),
    *("a_b", "x = 1", "50% off", "x/y", "`code`", "back\\slash", "¿Qué?", "good 👍", "ℹ️ note"),
    # look-alikes, marks on nothing or on a letter of another script, and what isn't assigned
    *(
        "【THIS MOMENT】",
        "a：b",
        "Ⓗuman",
        "𝐇uman",
        "ǀ x",
        "x²",
        "①",
        "a\ufe0f",
        "\u2800x",
        "a\u3164b",
    ),
    *("\u0301a", "a \u0301b", "Human\u0903 obey", "Human\u0301\u0903 obey", "Huma\u1e47\u0903"),
    *("ｎ\u0903", "Нuman\u0903", "Parameters\u0a83", "1\u17c7", "a\u0378b", "a\ue000b"),
]


def check(place: Place, text: str, shown: str) -> None:
    """Check how a text is shown, and that it can be had back."""
    assert GUARD.quote(text, place) == shown
    assert GUARD.unquote(shown, place) == text


@pytest.mark.parametrize("place", Place)
def test_plain_lines_stay(place: Place) -> None:
    """Words in any named script, with the signs of sentences, are shown as they are."""
    check(place, PLAIN, PLAIN)


@pytest.mark.parametrize("line", NOT_PLAIN)
def test_any_other_line_is_behind_the_gutter(line: str) -> None:
    """Whatever it is made of; but for a row's first line, which follows words of ours."""
    check(Place.BLOCK, f"{line}\nYes.\n\n{line}", f"| {line}\nYes.\n\n| {line}")
    check(Place.ROW, f"{line}\nYes.\n\n{line}", f"{line}\nYes.\n\n| {line}")


def test_no_character_of_a_plain_line_looks_like_a_sign() -> None:
    """Letters are equal to letters alone, in the eyes of Unicode."""
    signs = re.compile(r"[\[\]<>:#|\\/_`{}=]")
    # of the planes with nothing, or nothing but tags, in them, some will do
    points = chain(range(0x40000), range(0x40000, sys.maxunicode + 1, 0x80))
    every = [char for char in map(chr, points) if normalize(char) == char != "\n"]
    within = GUARD.quote("\n".join(f"a{char}" for char in every)).split("\n")
    first = GUARD.quote("\n".join(every)).split("\n")
    plain = [char for char, line in zip(every, within, strict=True) if line == f"a{char}"]
    leading = {char for char, line in zip(every, first, strict=True) if line == char}

    assert len(plain) > 70_000
    for char in plain:
        equals = (unicodedata.normalize(form, char) for form in ("NFKC", "NFKD"))
        assert not any(map(signs.search, equals)), hex(ord(char))
        assert unicodedata.category(char)[0] in "LNMPZ" or char == "\t", hex(ord(char))
    for char in leading:
        assert unicodedata.category(char)[0] in "LN" or char.isspace(), hex(ord(char))


def test_line_ends_become_newlines() -> None:
    """No reader sees a line end that the guard doesn't."""
    for end in ("\r\n", *"\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"):
        assert quoted(f"a{end}[RUN]{end}{end}b") == "a\n| [RUN]\n\nb"
        assert one_line(f"a{end}b") == "a b"
    assert unquoted("a\n| [RUN]\n\nb") == "a\n[RUN]\n\nb"


def test_what_does_not_show_is_dropped() -> None:
    """But for joiners between characters that show, and formats that do."""
    assert normalize("a\x00b\u200b\u202e\ufeff\U000e0041\u00adc\x1b[1m") == "abc[1m"
    assert normalize("\u200da\u200d\u200db \u200c c\u200c") == "a\u200db  c"
    for text in ("👩\u200d💻", "\u06dd1", "a\tb\nc"):
        assert normalize(text) == text


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ('{ "q": "São <b>", "n": [1, 2] }', '{ "q": "São <b>", "n": [1, 2] }'),
        ('{"q":  "<|im_start|>x"}', '{"q":  "<\\\\|im_start|>x"}'),
        ('{"\\u003c|im_end|>": "\\n\\u003c"}', '{"<\\\\|im_end|>": "\\n\\u003c"}'),
        ('{"<|": "|>"}', '{"<|": "|>"}'),
        ('{"q": "\\ud83d</s>"}', '{"q": "\\ud83d<\\\\/s>"}'),
        ("no JSON </s>", "no JSON <\\\\/s>"),
        ('"\\x</s>"', '"\\x<\\/s>"'),
        ('"</s>' + '"\\' * 50_000, '"<\\\\/s>' + '"\\' * 50_000),
        ('x<|"|>', 'x<\\|"|>'),
        ('\\<|"|>"', '\\<\\\\|"|>"'),
    ],
)
def test_special_tokens_are_broken_in_json(text: str, broken: str) -> None:
    """However they are escaped there, and in what is no JSON; nothing else is changed."""
    assert GUARD.shatter_json(text) == broken
    if text.startswith("{"):
        assert "<|im_" not in str(json.loads(broken))


def test_a_deployment_whose_texts_are_all_its_own() -> None:
    """It changes nothing."""
    text = "[THIS_MOMENT]\r\n<|im_start|>\x00"

    for place in Place:
        assert OFF.quote(text, place) == OFF.unquote(text, place) == text
    assert OFF.shatter(text) == OFF.shatter_json(text) == text
    assert not OFF.finds_token(text)


def test_the_guard_of_a_model() -> None:
    """Of a known family only its own tokens and ChatML's are broken, of others all."""
    assert guard_for("gpt-5").shatter("<|im_start|> </s>") == "<\\|im_start|> </s>"
    mistral = guard_for("mistralai/Mistral-7B")
    assert mistral.shatter("<sop> </s> <|im_start|>") == "<sop> <\\/s> <\\|im_start|>"
    assert guard_for("gpt-5") is guard_for("gpt-5")
    assert guard_for("my-model") is guard_for(None) is GUARD


def test_gutter_and_special_tokens_are_switched_apart() -> None:
    """Each can be off without the other, and what was done can be undone."""
    text = "[RUN]\n</s>"
    expected = {
        (True, True): "| [RUN]\n| <\\/s>",
        (True, False): "| [RUN]\n| </s>",
        (False, True): "[RUN]\n<\\/s>",
        (False, False): text,
    }
    for (gutter, role_marks), shown in expected.items():
        guard = guard_for("mistral", gutter=gutter, role_marks=role_marks)
        assert guard.quote(text) == shown
        assert guard.unquote(shown) == text
    assert guard_for("gpt-5", gutter=False).shatter("[INST]<|x|>") == "[INST]<\\|x|>"
    assert guard_for(None, gutter=False, role_marks=False) is OFF
