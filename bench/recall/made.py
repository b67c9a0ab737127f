"""Histories with questions that are made by rule, of chats that have none.

The chats of a language are chained into one history, a day after the other. A question asks with
one or two words of a message, the later one first and each in another form, and these are in no
other message: either a word that only this one has, or two that others have, but not together.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import combinations
from typing import Any, Final, NamedTuple

from bench.recall.bending import Word, bent

#: Questions of a chat and of a language at most.
A_CHAT, A_LANGUAGE = 12, 120
#: Of all messages, the share that may have a word of the question.
RARE: Final = 0.02
#: Between two chats.
DAY: Final = timedelta(days=1)

#: Questions on a word, and on two. What is left out of questions before they are searched
#: (`service.recall.terms`) was chosen with the first two of each in sight, not with the others.
_ONE: Final[Mapping[str, tuple[str, ...]]] = {
    "zh": (
        "之前说的{0}是怎么回事？",
        "还记得{0}的事吗？",
        "咱俩聊{0}那回，具体讲啥来着？",
        "{0}那件事后来怎么着了？",
    ),
    "ja": (
        "前に{0}って話、どうなったんでしたっけ？",
        "{0}のこと、覚えていますか？",
        "{0}に関する件、もう一度お願いできますか？",
        "{0}のこと詳しくお聞きしたいです",
    ),
    "ko": (
        "전에 {0} 얘기 기억나?",
        "{0} 그게 뭐였지?",
        "{0} 관련된 내용 다시 알려줄래?",
        "{0} 쪽은 결국 어떻게 됐더라?",
    ),
    "en": ("What was that about {0}?", "Do you remember {0}?"),
    "fr": ("C'était quoi déjà, {0} ?", "Parle-moi encore de {0}"),
}
_TWO: Final[Mapping[str, tuple[str, ...]]] = {
    "zh": (
        "关于{1}还有{0}，之前说了什么？",
        "{1}和{0}是什么时候说的？",
        "你上回讲的{1}跟{0}，能再讲一遍么？",
        "{1}、{0}分别是咋回事儿？",
    ),
    "ja": (
        "{1}とか{0}について、何と言っていましたか？",
        "{1}と{0}の話はいつでしたか？",
        "{1}や{0}に関する件、もう一度お願いできますか？",
        "{1}も{0}も出てきたのはどこでしたかね",
    ),
    "ko": (
        "{1}, 그리고 {0} 얘기는 뭐였지?",
        "{1} {0} 언제 말했더라?",
        "{1}이랑 {0} 관련된 내용 다시 알려줄래?",
        "{0}, {1} 나온 대목이 궁금해",
    ),
    "en": ("What did we say about {1} and {0}?", "When was it about {1}, {0}?"),
    "fr": ("On disait quoi sur {1} et {0} ?", "C'était quand, {1} et {0} ?"),
}


class Asked(NamedTuple):
    """A question, the id of the message that answers it, and its kind after its language."""

    text: str
    answer: str
    kind: str


class Made(NamedTuple):
    """A history in a language, and the questions on it."""

    language: str
    rows: Sequence[dict[str, Any]]
    questions: Sequence[Asked]


#: Where in a history the messages that have a word are.
Holders = Mapping[str, frozenset[int]]
#: The words of a question on a message; none if it has no such words.
Pick = Callable[[Sequence[Word], Holders, int], Sequence[Word]]


def made(chats: Iterable[Mapping[str, Any]], languages: Iterable[str]) -> Iterator[Made]:
    """Yield a history for each of some languages, with its questions."""
    by_language: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for chat in chats:
        by_language[chat["lang"]].append(chat)
    for language in languages:
        rows = list(_chained(by_language[language]))
        yield Made(language, rows, _thinned(list(_questions(rows, language))))


def _chained(chats: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    end = None
    for chat in chats:
        times = [datetime.fromisoformat(message["timestamp"]) for message in chat["messages"]]
        shift = end + DAY - min(times) if end else timedelta()
        for message, at in zip(chat["messages"], times, strict=True):
            named = {"id": f"{chat['id']}/{message['id']}", "chat": chat["id"]}
            yield {**message, **named, "timestamp": (at + shift).isoformat()}
        end = max(times) + shift


def _questions(rows: Sequence[Mapping[str, Any]], language: str) -> Iterator[Asked]:
    words = [bent(row["content"], language) for row in rows]
    holders = _holders(rows, words)
    most = int(RARE * len(rows))
    asked: Counter[str] = Counter()
    for row, found in zip(rows, words, strict=True):
        number = asked[row["chat"]]
        # now about two words, now about one, if the message has such
        for kind, pick, forms in (_KINDS, _KINDS[::-1])[number % 2]:
            picked = pick(found, holders, most) if number < A_CHAT else ()
            if picked:
                form = forms[language][asked.total() % len(forms[language])]
                text = form.format(*(word.asked for word in picked))
                yield Asked(text, row["id"], f"{language}/{kind}")
                asked[row["chat"]] += 1
                break


def _holders(rows: Sequence[Mapping[str, Any]], words: Sequence[Sequence[Word]]) -> Holders:
    texts = [row["content"].lower() for row in rows]
    starts = dict.fromkeys(word.start for each in words for word in each)
    return {start: frozenset(n for n, t in enumerate(texts) if start in t) for start in starts}


def _alone(words: Sequence[Word], holders: Holders, _: int) -> Sequence[Word]:
    return [word for word in words if len(holders[word.start]) == 1][:1]


def _together(words: Sequence[Word], holders: Holders, most: int) -> Sequence[Word]:
    """Return the two rarest words that others have as well, but not together."""
    shared = [word for word in words if 1 < len(holders[word.start]) <= most]
    pairs = [
        pair
        for pair in combinations(shared, 2)
        if len(holders[pair[0].start] & holders[pair[1].start]) == 1
    ]
    return min(pairs, key=lambda two: sum(len(holders[w.start]) for w in two), default=())


_KINDS: Final[tuple[tuple[str, Pick, Mapping[str, tuple[str, ...]]], ...]] = (
    ("two", _together, _TWO),
    ("one", _alone, _ONE),
)


def _thinned(questions: Sequence[Asked]) -> list[Asked]:
    """Leave questions out evenly where there are too many."""
    step = max(len(questions) / A_LANGUAGE, 1.0)
    return [questions[int(n * step)] for n in range(min(len(questions), A_LANGUAGE))]
