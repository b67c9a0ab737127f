"""Conversations with questions, and for each question the messages that answer it."""

import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

#: Sets whose questions name people, so that each message has to say who speaks.
NAMED: Final = frozenset({"locomo"})
#: Questions that have no answer in the conversation.
ADVERSARIAL: Final = 5

#: The set that is made here, of these files.
MADE: Final = "cjk"
CHATS: Final = ("multilingual", "realpersonachat_ja")
#: Questions a chat and a language at most.
A_CHAT, A_LANGUAGE = 4, 120


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the ids of what answers it."""

    text: str
    evidence: tuple[str, ...]
    category: str


@dataclass(frozen=True, slots=True)
class Case:
    """A history, and what is asked of it."""

    id: str
    rows: Sequence[dict[str, Any]]
    questions: Sequence[Question]


def cases(data: Path, name: str) -> list[Case]:
    """Return the cases of a set; those of languages without blanks are made of other sets."""
    if name == MADE:
        return list(_made(data))
    return [_case(conversation, name) for conversation in _lines(data / f"{name}.jsonl.gz")]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def _case(conversation: dict[str, Any], name: str) -> Case:
    rows = []
    for message in conversation["messages"]:
        speaker = f"{message['metadata'].get('speaker')}: " if name in NAMED else ""
        content = f"{speaker}{message['content']}"
        rows.append({**message, "run_id": None, "content": content})
    asked = [
        Question(each["question"], tuple(each["evidence"]), str(each.get("category")))
        for each in conversation.get("questions", ())
        if each["evidence"] and each.get("category") != ADVERSARIAL
    ]
    return Case(conversation["id"], rows, asked)


# --- questions in Chinese, Japanese and Korean -----------------------------------------------

#: What is taken for a word: two Han characters; a run of Han or Katakana; what blanks part.
_WORDS: Final = {
    "zh": re.compile(r"(?=([\u4e00-\u9fff]{2}))"),
    "ja": re.compile(r"([\u4e00-\u9fff]{2,6}|[\u30a1-\u30fa\u30fc]{3,10})"),
    "ko": re.compile(r"([\uac00-\ud7a3]{3,8})"),
}
#: Questions about two words, the later one first.
_ASKED: Final = {
    "zh": "关于{1}还有{0}，之前说了什么？",
    "ja": "{1}とか{0}について、何と言っていましたか？",
    "ko": "{1}하고 {0} 얘기는 뭐였지?",
}
#: A word without its last syllable, which in Korean is often an ending; the question has others.
_BENT: Final[dict[str, Callable[[str], str]]] = {"ko": lambda word: word[:-1]}


def _made(data: Path) -> Iterator[Case]:
    """Yield a history for each language: its chats, one after the other, with questions.

    A question asks with the two rarest words of a message, in another order and form.
    """
    chats: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name in CHATS:
        for chat in _lines(data / f"{name}.jsonl.gz"):
            chats[chat["lang"]].append(chat)
    for language in _WORDS:
        rows = [
            {**message, "id": f"{chat['id']}/{message['id']}", "chat": chat["id"]}
            for chat in chats[language]
            for message in chat["messages"]
        ]
        rows.sort(key=lambda row: row["timestamp"])
        yield Case(language, rows, list(_questions(rows, language))[:A_LANGUAGE])


def _questions(rows: Sequence[dict[str, Any]], language: str) -> Iterator[Question]:
    words = [_words(row["content"], language) for row in rows]
    known = Counter(word for each in words for word in each)
    asked: Counter[str] = Counter()
    for row, found in zip(rows, words, strict=True):
        # what only one message has; a word that overlaps another one is skipped
        rare = [word for word in found if known[word] == 1]
        apart = [word for place, word in enumerate(rare) if place % 2 == 0]
        bend = _BENT.get(language, str)
        pair = tuple(map(bend, apart[:: max(len(apart) - 1, 1)]))
        if len(set(pair)) < 2 or asked[row["chat"]] == A_CHAT:
            continue
        asked[row["chat"]] += 1
        yield Question(_ASKED[language].format(*pair), (row["id"],), language)


def _words(text: str, language: str) -> list[str]:
    return list(dict.fromkeys(_WORDS[language].findall(text)))
