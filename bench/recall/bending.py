"""Words of a text in other forms than it has them: endings changed, particles changed, parted.

The rules know no dictionary: now and then a form comes out that nobody says, and what the text
has still is in it. What they aim at is what a search meets: a verb in another tense,
a noun with another particle.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple


class Word(NamedTuple):
    """A word of a text, and its form in a question."""

    #: The start of it, which any of its forms in other texts has.
    start: str
    asked: str


#: A pattern whose first group is the start of a word, and its form in a question.
Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]

_HAN: Final = "\u4e00-\u9fff"
_HIRA: Final = "\u3041-\u309f"


def bent(text: str, language: str) -> list[Word]:
    """Return the words of a text that there is a rule for, each once, in their order."""
    found = {word.start: word for word in _matches(text.lower(), language)}
    return list(found.values())


def _matches(text: str, language: str) -> Iterator[Word]:
    taken: set[int] = set()
    found = [(match, ask) for rule, ask in RULES[language] for match in rule.finditer(text)]
    # of two rules for the same place, the first one
    for match, ask in found:
        place = set(range(*match.span()))
        if taken.isdisjoint(place):
            taken |= place
            asked = ask(match)
            if asked:
                yield Word(match[1], asked)


# --- Chinese: words keep their form, but an object may be apart from its verb ----------------

#: Verbs that take an object of a character, and characters that are none.
_VERBS: Final = "吃喝看买听写读画养唱骑打玩做"
_NO_OBJECTS: Final = "过了着到起来去完见好得的算听看我你他她它一不很"
#: Characters that are mostly words of grammar, or parts of them.
_GRAMMAR: Final = (
    "我你您他她它们的了是不在有这那个很也都就和与吗呢吧啊么什怎为会能要可以好太真还没但而把被让"
    "给跟对从到得地着过上下里些每样多少几哪谁哦嗯哈呀啦嘛一二三两只次时候"
)
#: Any other; two or four in a row are mostly a word, or two.
_TOLD: Final = rf"(?:(?![{_GRAMMAR}])[{_HAN}])"

_CHINESE: Final[tuple[Rule, ...]] = (
    (
        re.compile(rf"(([{_VERBS}])(?![{_NO_OBJECTS}])({_TOLD})(?!{_TOLD}))"),
        lambda m: f"{m[2]}过{m[3]}",
    ),
    (re.compile(rf"(?<!{_TOLD})({_TOLD}{{2}})(?=(?:{_TOLD}{{2}})?(?!{_TOLD}))"), lambda m: m[1]),
    (re.compile(rf"(?<=(?<!{_TOLD}){_TOLD}{{2}})({_TOLD}{{2}})(?!{_TOLD})"), lambda m: m[1]),
)

# --- Japanese: polite and past forms become plain ones, compounds are parted ----------------------

#: The last sound of a verb's plain form, by the one before ``ます`` and by what is in its past.
_PLAIN: Final = dict(zip("いきぎしちにびみり", "うくぐすつぬぶむる", strict=True))
_FROM_PAST: Final = {
    "いて": "く",
    "いた": "く",
    "んで": "む",
    "んだ": "む",
    "って": "る",
    "った": "る",
}

_JAPANESE: Final[tuple[Rule, ...]] = (
    (re.compile(rf"([{_HAN}]{{2,3}})し(?:て|た|ました|ます)"), lambda m: f"{m[1]}する"),
    (
        re.compile(rf"([{_HAN}]{{1,3}})([{_HIRA}]?)(?:ました|ません|ます|たい)"),
        lambda m: f"{m[1]}{_PLAIN.get(m[2], f'{m[2]}る')}",
    ),
    (
        re.compile(rf"(?<![{_HAN}])([{_HAN}])(いて|いた|んで|んだ|って|った)"),
        lambda m: f"{m[1]}{_FROM_PAST[m[2]]}",
    ),
    (re.compile(rf"(?<![{_HAN}])([{_HAN}])し[てた]"), lambda m: f"{m[1]}す"),
    (re.compile(rf"([{_HAN}]{{1,2}})(し?)(?:かった|くて)"), lambda m: f"{m[1]}{m[2]}い"),
    (re.compile(rf"([{_HAN}]{{1,2}})(し?)い(?=です)"), lambda m: f"{m[1]}{m[2]}かった"),
    (re.compile(rf"(([{_HAN}]{{2}})([{_HAN}]{{2}}))"), lambda m: f"{m[3]}の{m[2]}"),
)

# --- Korean: endings and particles become others -------------------------------------------------

_HANGUL: Final = "\uac00-\ud7a3"
_FIRST: Final = 0xAC00
#: Syllables of a first sound; those of a vowel, one for each last sound.
_VOWELS: Final = 21
_LASTS: Final = 28
#: The last sound of ``했``; vowels that a past tense has run together, and those of the stem.
_PAST: Final = 20
_PARTED: Final = {9: 8, 14: 13, 6: 20, 10: 11}

#: Other particles for a noun, after a last sound and after none.
_PARTICLES: Final[Mapping[str, tuple[str, str]]] = {
    "을를": ("은", "는"),
    "에서에게으로까지부터": ("을", "를"),
    "와과의": ("이", "가"),
}


def _is_past(syllable: str) -> bool:
    return (ord(syllable) - _FIRST) % _LASTS == _PAST


def _present(match: re.Match[str]) -> str:
    """Return a verb as it is before a noun: ``마셨어`` becomes ``마시는``."""
    start, last = match[1], match[2]
    if not _is_past(last):
        return ""
    first, vowel = divmod((ord(last) - _FIRST) // _LASTS, _VOWELS)
    vowel = _PARTED.get(vowel, vowel)
    return f"{start}{chr(_FIRST + (first * _VOWELS + vowel) * _LASTS)}는"


def _other_particle(match: re.Match[str]) -> str:
    start, particle = match[1], match[2]
    if _is_past(start[-1]):
        return ""
    closed, opened = next(v for k, v in _PARTICLES.items() if particle in k)
    return f"{start}{closed if (ord(start[-1]) - _FIRST) % _LASTS else opened}"


_KOREAN: Final[tuple[Rule, ...]] = (
    (
        re.compile(
            rf"(?<![{_HANGUL}])([{_HANGUL}]{{2,4}})(?:했어|했다|해요?|한다|하고|하는)(?![{_HANGUL}])"
        ),
        lambda m: f"{m[1]}했던",
    ),
    (
        re.compile(rf"(?<![{_HANGUL}])([{_HANGUL}]{{1,3}})[었았](?:어요?|다|고|니)(?![{_HANGUL}])"),
        lambda m: f"{m[1]}는",
    ),
    (
        re.compile(
            rf"(?<![{_HANGUL}])([{_HANGUL}]{{1,3}})([{_HANGUL}])(?:어요?|다|고|니)(?![{_HANGUL}])"
        ),
        _present,
    ),
    (
        re.compile(
            rf"(?<![{_HANGUL}])([{_HANGUL}]{{2,5}}?)(에서|에게|으로|까지|부터|[을를와과의])(?![{_HANGUL}])"
        ),
        _other_particle,
    ),
)

# --- English and French: endings ----------------------------------------------------------------

_OTHER: Final = {"ing": "ed", "ed": "ing", "er": "ait", "é": "er", "ait": "er"}

_ENGLISH: Final[tuple[Rule, ...]] = (
    (re.compile(r"\b([a-z]{3,})(ing|ed)\b"), lambda m: m[1] + _OTHER[m[2]]),
    (re.compile(r"\b([a-z]{3,}(?<!s))s\b"), lambda m: m[1]),
    (re.compile(r"\b([a-z]{5,}(?<![eys]))\b(?!')"), lambda m: f"{m[1]}s"),
)
_FRENCH: Final[tuple[Rule, ...]] = (
    (re.compile(r"\b(\w{3,})(er|é|ait)\b"), lambda m: m[1] + _OTHER[m[2]]),
    (re.compile(r"\b(\w{4,}(?<![sx]))s\b"), lambda m: m[1]),
    (re.compile(r"\b(\w{5,}(?<![sxz]))\b(?!')"), lambda m: f"{m[1]}s"),
)

RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "zh": _CHINESE,
    "ja": _JAPANESE,
    "ko": _KOREAN,
    "en": _ENGLISH,
    "fr": _FRENCH,
}
