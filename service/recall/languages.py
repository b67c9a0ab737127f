"""Detect the language of a text by its stop words, and remove words that only ask."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Final

from Stemmer import algorithms
from stop_words import AVAILABLE_LANGUAGES, get_stop_words

#: The language of a text in which no language has enough stop words.
DEFAULT: Final = "english"
#: The share of stop words that is enough: in texts of a language they are a third to a half of the
#: words, in others less than a tenth.
LEAST_SHARE: Final = 0.15

#: English words without a subject. The list of the package has 1,333, "home" and "work" among them;
#: with it, one to three of a hundred messages would not be found.
_ENGLISH: Final = """
    a an the and but if or because as until while of at by for with about against between into
    through during before after above below to from up down in out on off over under again further
    then once here there when where why how what which who whom whose this that these those
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his
    himself she her hers herself it its itself they them their theirs themselves
    am is are was were be been being have has had having do does did doing done
    will would shall should can could may might must
    all any both each few more most other some such no nor not only own same so than too very just
    also now
"""

#: The parts of "it's", "don't", "we'll" and "l'eau" at the apostrophe.
_ENDINGS: Final = frozenset({"s", "t", "d", "m", "l", "ll", "re", "ve", "c", "j", "n", "qu"})

#: The stop words of each language that has a stemmer; read once, on import.
STOP_WORDS: Final[Mapping[str, frozenset[str]]] = {
    **{
        language: frozenset(get_stop_words(language)) | _ENDINGS
        for language in sorted(set(AVAILABLE_LANGUAGES) & set(algorithms()))
    },
    DEFAULT: frozenset(_ENGLISH.split()) | _ENDINGS,
}


def _by_word() -> Mapping[str, Sequence[str]]:
    """Return the languages of each stop word."""
    having: dict[str, tuple[str, ...]] = {}
    for language, words in STOP_WORDS.items():
        having |= {word: (*having.get(word, ()), language) for word in words}
    # most of the 7,000 words share a few tuples
    shared: dict[tuple[str, ...], tuple[str, ...]] = {}
    return {word: shared.setdefault(names, names) for word, names in having.items()}


_HAVING: Final = _by_word()
_NONE: Final[Sequence[str]] = ()
#: The position of each language among them all.
_POSITIONS: Final = {language: index for index, language in enumerate(STOP_WORDS)}

#: Pairs of characters in the stop words of Chinese, Japanese and Korean.
STOP_PAIRS: Final = frozenset(
    word[start : start + 2]
    for language in ("chinese", "japanese", "korean")
    for word in get_stop_words(language)
    for start in range(len(word) - 1)
)

#: Stop words of Chinese with one character; most are parts of other words as well.
STOP_HAN: Final = frozenset(word for word in get_stop_words("chinese") if len(word) == 1)

#: Words with which Chinese and Japanese ask about what was said. The packages' lists have few of
#: them, and without blanks they would form pairs with the words that a question is about.
_ASKING: Final = """
    什么时候 什么 怎么回事 怎么样 怎么 怎样 为什么 哪里 哪儿 哪个 哪些 多少 是不是 有没有 能不能
    可以 之前 以前 上次 刚才 曾经 还记得 记不记得 记得 关于 有关 说过 说了 说的 聊过 聊到 聊了
    谈过 谈到 提过 提到 讲过 告诉 知道 请问 时候 事情 的事 我们 你们 他们 她们 咱们
    何時 何 誰 どこ だれ なぜ どうして どんな どの どう いつ なに について 覚えて 覚え 思い出
    言って 言った 言い 話した 話して 話し の話 って話 教えて 前に 以前 この前 さっき
"""
#: Words with which Korean asks; they are matched at the beginning of a word.
_ASKING_KOREAN: Final = """
    언제 어디서 어디 누가 누구 무엇 뭐라고 뭐였 뭐 왜 어떻게 어떤 어느 얼마나
    얘기 이야기 말했 기억나 기억해 전에 지난번 대해서 대해 관해서 관해 그리고 그게
"""


def _one_of(words: str) -> str:
    return "|".join(sorted(words.split(), key=len, reverse=True))


_ASKS: Final = re.compile(f"{_one_of(_ASKING)}|(?<![가-힣])(?:{_one_of(_ASKING_KOREAN)})")
#: Particles of Chinese between words and at the end of a sentence.
_PARTICLES: Final = re.compile(r"的|[了吗呢吧啊嘛]+(?=\W|$)")
_KANA: Final = re.compile("[\u3041-\u309f]")


def is_japanese(text: str) -> bool:
    """Return whether a text has Hiragana, which no other language uses."""
    return _KANA.search(text) is not None


def strip_question_words(question: str) -> str:
    """Return a question without the words that ask, in languages without blanks."""
    subject = _ASKS.sub(" ", question)
    return subject if is_japanese(question) else _PARTICLES.sub(" ", subject)


def detect_language(words: Iterable[str]) -> str:
    """Return the language with the most stop words among these words."""
    known = list(words)
    hits = Counter(chain.from_iterable(map(_HAVING.get, known, repeat(_NONE))))
    # of languages with equal shares, English or else the first
    ranks = {(count, name == DEFAULT, -_POSITIONS[name]): name for name, count in hits.items()}
    best = ranks[max(ranks)] if ranks else DEFAULT
    return best if hits[best] >= LEAST_SHARE * len(known) else DEFAULT
