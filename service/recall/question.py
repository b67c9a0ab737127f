"""Parse a question into weighted search terms; one without any uses those of the last turn."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import Final

from stop_words import get_stop_words

from formatters.model import Passage, Role
from service.recall.dates import READ_QUESTIONS, is_month
from service.recall.kinds import find_kinds
from service.recall.terms import (
    DEFAULT,
    STOP_WORDS,
    analyze,
    detect_language_of,
    is_cjk,
    plain_words,
    without_stop_words,
    words,
)

#: Characters of a longer question that count at its beginning, and at its end: a question precedes
#: or follows a pasted text.
MAX_QUESTION_CHARS: Final = 2_000
#: Newest passages used to detect the language, together with the question.
LANGUAGE_PASSAGES: Final = 20
#: Words of a question whose kinds are looked up; a longer text is no question for a kind.
KIND_WORDS: Final = 20
#: Newest texts in which speakers are looked for, and how many of them a speaker's name begins.
NAMING_TEXTS: Final = 20
LEAST_TURNS: Final = 2
#: The terms to look up in an index that count at the beginning of a question, and at its end.
QUESTION_TERMS: Final = 100
#: The most passages of a last turn.
LAST_TURN_PASSAGES: Final = 2

# Weights of terms. A word of the question has as much as it occurs in it.

#: A word of the last turn: less than any of a question's own words would have.
LAST_TURN_WEIGHT: Final = 0.5
#: A word of asking, where those of the last turn count.
ASKING_WEIGHT: Final = 0.1
#: A pair of Hiragana: most are endings, which say nothing about the subject.
HIRAGANA_WEIGHT: Final = 0.3
#: A single Han character, in addition to its pairs.
HAN_WEIGHT: Final = 0.3
#: A factor for each stop word of Chinese in a pair of Han characters.
STOP_HAN_WEIGHT: Final = 0.3
#: A pair of Han and Hiragana in Japanese, where the stem of a verb is often one character and the
#: next one is inflected; that single character counts as a word.
HAN_HIRAGANA_WEIGHT: Final = 0.5

#: English words with which somebody asks on, answers or agrees, whatever the subject.
_ASKING_ON: Final = """
    advise advised answer answered explain explained happen happened mean meant mention mentioned
    recommend recommended remind repeat repeated say said suggest suggested tell told
    again ahead another continue detail details else example examples go many more much one ones
    ok okay other others please really right sure thank thanks thing things yeah yes
"""
_WORDS_OF_ASKING: Final = frozenset(_ASKING_ON.split())

#: The verb of an English request, such as "list all" and "can you give me a list of".
_REQUEST: Final = re.compile(
    r"^\s*(?:(?:please|can|could|would|will|you)\s+)*"
    r"(?:list|show|give|tell|remind|summari[sz]e|describe|explain)"
    r"(?=\s+(?:me|us|all|every|the|my|our|your|some|any|what|who|when|where|how|why)\b)"
    r"(?:\s+(?:me|us)\s+(?:a|the)\s+list\s+of\b)?",
    re.IGNORECASE,
)
#: A word with a small letter at its beginning: no name.
_PLAIN_WORD: Final = re.compile(r"\b[a-z]{3,}\b")
#: A name that may begin a text, as in "Tim: …" and "Ann Lee: …".
_SPEAKER: Final = re.compile(r"([A-Z][\w'-]{1,29}(?: [A-Z][\w'-]{1,29})?):")
#: Words that ask for what is so now, of which older messages may say something else.
_OF_NOW: Final = re.compile(
    r"\b(?:now|current(?:ly)?|nowadays|latest|newest|most recent(?:ly)?|up[- ]to[- ]date"
    r"|these days|at the moment|at present|as of (?:now|today)"
    r"|jetzt|aktuell\w*|derzeit|momentan|zurzeit|neuest\w+|maintenant|actuel\w*|en ce moment"
    r"|ahora|actualmente|adesso|agora|att?ual\w*|сейчас|теперь)\b"
    r"|今の|現在|最新|现在|目前|지금|현재|최신",
    re.IGNORECASE,
)
_SINGLE_HAN: Final = re.compile("(?<![\u3400-\u9fff])[\u3400-\u9fff](?![\u3400-\u9fff])")


@dataclass(frozen=True, slots=True)
class Question:
    """The terms to search for, with their weights."""

    text: str
    language: str
    stems: Mapping[str, float]
    #: Runs of characters within words.
    grams: Mapping[str, float]
    #: Its own words that say something, as they are written; none of CJK.
    words: Sequence[str] = ()
    #: The stems of kinds of what its words name.
    kinds: Set[str] = frozenset()
    #: The moment of the question; None if unknown.
    now: datetime | None = None
    #: Whether the terms are its own, and not those of the last turn.
    has_terms: bool = True
    #: Whether it asks for what is so now.
    of_now: bool = False


def read_question(text: str, passages: Sequence[Passage], now: datetime | None) -> Question:
    """Read a question that was asked after these passages, oldest first."""
    text = shorten_question(text)
    newest = [passage.text[:MAX_QUESTION_CHARS] for passage in passages[-LANGUAGE_PASSAGES:]]
    language = _choose_language(text, detect_language_of((text, *newest)))
    question = replace(_read_alone(text, language), now=now)
    if question.stems and not _asks_on(text, language):
        return question
    # such as "and when was that?": the last human message with its answer, or the newest passages
    stems = dict.fromkeys(question.stems, ASKING_WEIGHT)
    grams = dict.fromkeys(question.grams, ASKING_WEIGHT)
    turn = passages[-LAST_TURN_PASSAGES:]
    humans = [index for index, passage in enumerate(turn) if passage.speaker is Role.HUMAN]
    for passage in turn[humans[-1] :] if humans else turn:
        last = analyze(passage.text, language)
        stems |= dict.fromkeys(last.stems, LAST_TURN_WEIGHT)
        grams |= dict.fromkeys(last.grams, LAST_TURN_WEIGHT)
    kinds = question.kinds - stems.keys()
    has_terms = bool(question.stems)
    return replace(question, stems=stems, grams=grams, kinds=kinds, has_terms=has_terms)


@lru_cache(maxsize=READ_QUESTIONS)
def _asks_on(text: str, language: str) -> bool:
    """Return whether a sentence names no subject, as "what did you advise?"."""
    found = words(text)
    said = [*without_stop_words(found, language)]
    is_sentence = 0 < len(said) < len(found)  # alone, as in a query, a word may be a subject
    return language == DEFAULT and is_sentence and _WORDS_OF_ASKING.issuperset(said)


@lru_cache(maxsize=READ_QUESTIONS)
def _read_alone(text: str, language: str) -> Question:
    """Read a question without what was said before it; a build needs that twice."""
    subject = strip_question_words(text)
    analysis = analyze(subject, language)
    stems = _weigh_terms(analysis.stems, subject)
    plain = _PLAIN_WORD.findall(text) if language == DEFAULT else ()
    subjects = islice(without_stop_words(plain, language), KIND_WORDS)
    return Question(
        text=text,
        language=language,
        stems=stems,
        grams=_weigh_terms(analysis.grams, subject),
        words=[*without_stop_words(plain_words(subject), language)],
        kinds=find_kinds(subjects) - stems.keys(),
        of_now=_OF_NOW.search(text) is not None,
    )


def _choose_language(text: str, around: str) -> str:
    """Return the question's own language if it has more stop words of it than of that around it.

    What answers a question is mostly in its language, though the newest messages may not be.
    """
    own = detect_language_of((text,))
    if own == around:
        return own
    words = plain_words(text)
    known, known_around = (sum(w in STOP_WORDS[each] for w in words) for each in (own, around))
    return own if known > known_around else around


def without_speakers(question: str, texts: Iterable[str]) -> str:
    """Return a question without the names of those who speak in texts such as "Tim: …".

    Each of these texts has a name, so a name in the question says little about what is similar.
    Names that are words as well, such as "Will" and "May", stay.
    """
    openings = Counter(match[1] for text in texts if (match := _SPEAKER.match(text)))
    speakers = [name for name, turns in openings.items() if turns >= LEAST_TURNS]
    names = [name for speaker in speakers for name in speaker.split() if not _is_word(name)]
    if not names:
        return question
    named = "|".join(map(re.escape, names))
    kept = re.sub(rf"\b(?:{named})\b(?:['’]s\b)?", "", question)
    return kept.strip() if any(map(str.isalnum, kept)) else question


def _is_word(name: str) -> bool:
    return name.lower() in STOP_WORDS[DEFAULT] or is_month(name.lower())


def question_terms(text: str, passages: Sequence[Passage]) -> tuple[str, ...]:
    """Return the terms to look up for a question that was asked after these passages."""
    question = read_question(text, passages, None)
    terms = tuple(dict.fromkeys((*question.stems, *question.words)))
    if len(terms) <= 2 * QUESTION_TERMS:
        return terms
    return (*terms[:QUESTION_TERMS], *terms[-QUESTION_TERMS:])


def shorten_question(text: str) -> str:
    """Return the beginning and the end of a long question."""
    if len(text) <= 2 * MAX_QUESTION_CHARS:
        return text
    return f"{text[:MAX_QUESTION_CHARS]} {text[-MAX_QUESTION_CHARS:]}"


def _weigh_terms(counts: Mapping[str, int], text: str) -> dict[str, float]:
    """Weigh words by their number, and characters and pairs by their script."""
    japanese_stems = frozenset(_SINGLE_HAN.findall(text)) if is_japanese(text) else None
    return {
        term: _cjk_weight(term, japanese_stems) if is_cjk(term) else number
        for term, number in counts.items()
    }


def _cjk_weight(term: str, japanese_stems: Set[str] | None) -> float:
    """Return the weight of a character or a pair; ``japanese_stems`` is None for other texts."""
    if is_hiragana(term):
        return HIRAGANA_WEIGHT
    if len(term) == 1:
        return 1.0 if japanese_stems and term in japanese_stems else HAN_WEIGHT
    if japanese_stems is None:
        stop_words = sum(character in STOP_HAN for character in term)
        return float(STOP_HAN_WEIGHT**stop_words)
    return HAN_HIRAGANA_WEIGHT if any(map(is_hiragana, term)) else 1.0


#: Stop words of Chinese with one character; most are parts of other words as well.
STOP_HAN: Final = frozenset(word for word in get_stop_words("chinese") if len(word) == 1)

#: Words that Chinese and Japanese use to ask about what was said. The packages' lists have few of
#: them, and without blanks they would form pairs with the words that a question is about.
_ASKING: Final = """
    什么时候 什么 怎么回事 怎么样 怎么 怎样 为什么 哪里 哪儿 哪个 哪些 多少 是不是 有没有 能不能
    可以 之前 以前 上次 刚才 曾经 还记得 记不记得 记得 关于 有关 说过 说了 说的 聊过 聊到 聊了
    谈过 谈到 提过 提到 讲过 告诉 知道 请问 时候 事情 的事 我们 你们 他们 她们 咱们
    何時 何 誰 どこ だれ なぜ どうして どんな どの どう いつ なに について 覚えて 覚え 思い出
    言って 言った 言い 話した 話して 話し の話 って話 教えて 前に 以前 この前 さっき
"""
#: Question words of Korean; they are matched at the beginning of a word.
_ASKING_KOREAN: Final = """
    언제 어디서 어디 누가 누구 무엇 뭐라고 뭐였 뭐 왜 어떻게 어떤 어느 얼마나
    얘기 이야기 말했 기억나 기억해 전에 지난번 대해서 대해 관해서 관해 그리고 그게
"""


def _one_of(words: str) -> str:
    return "|".join(sorted(words.split(), key=len, reverse=True))


_ASKS: Final = re.compile(f"{_one_of(_ASKING)}|(?<![가-힣])(?:{_one_of(_ASKING_KOREAN)})")
#: Particles of Chinese between words and at the end of a sentence.
_PARTICLES: Final = re.compile(r"的|[了吗呢吧啊嘛]+(?=\W|$)")
_HIRAGANA: Final = re.compile("[\u3041-\u309f]+")


def is_japanese(text: str) -> bool:
    """Return whether a text has Hiragana, which no other language uses."""
    return _HIRAGANA.search(text) is not None


def strip_question_words(question: str) -> str:
    """Return a question without the words that ask: the verb of a request, or those of CJK."""
    subject = _ASKS.sub(" ", _REQUEST.sub("", question))
    return subject if is_japanese(question) else _PARTICLES.sub(" ", subject)


def is_hiragana(term: str) -> bool:
    """Return whether a term is all Hiragana, the script of endings and small words."""
    return _HIRAGANA.fullmatch(term) is not None
