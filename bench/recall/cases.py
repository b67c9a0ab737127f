"""Conversations with questions, and for each question the messages that answer it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.json_lines import read_lines
from bench.recall.agents import agents
from bench.recall.kinds import Chat, advice, bursts, code
from bench.recall.made import Made, made

#: Sets whose questions name people, so that each message has to say who speaks.
NAMED: Final = frozenset({"locomo"})
#: Questions that have no answer in the conversation.
ADVERSARIAL: Final = 5

#: Sets that are made by rule, each a history for each of some languages, and the files of chats
#: that they are made of.
MADE: Final = {"cjk": ("zh", "ja", "ko"), "en_fr": ("en", "fr")}
CHATS: Final = ("multilingual", "realpersonachat_ja")
#: Sets that are made of other data with questions, and of what is said in meetings.
KINDS: Final = {"bursts": bursts, "code": code}
KINDS_OF: Final = "locomo"
ADVICE: Final = "advice"
MEETINGS: Final = "qmsum"
AGENTS: Final = "agents"
AGENTS_OF: Final = ("swe_agent", "tau_airline", "tau_threads")


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the ids of what answers it."""

    text: str
    evidence: tuple[str, ...]
    category: str
    #: Unique in its set.
    id: str = ""
    #: Of each of these messages, the passage that answers; empty if whole messages do.
    passages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A history, and the questions on it."""

    id: str
    rows: Sequence[dict[str, Any]]
    questions: Sequence[Question]


def cases(data: Path, name: str) -> list[Case]:
    """Return the cases of a set, made of chats without questions where it is such a set."""
    if name in MADE:
        chats = (chat for file in CHATS for chat in read_lines(data / f"{file}.jsonl.gz"))
        return [_made_case(each) for each in made(chats, MADE[name])]
    if name == AGENTS:
        files = (list(read_lines(data / f"{file}.jsonl.gz")) for file in AGENTS_OF)
        return [_kind_case(chat) for chat in agents(*files)]
    if name in {*KINDS, ADVICE}:
        conversations = list(read_lines(data / f"{KINDS_OF}.jsonl.gz"))
        if name in KINDS:
            return [_kind_case(chat) for chat in KINDS[name](conversations)]
        meetings = read_lines(data / f"{MEETINGS}.jsonl.gz")
        texts = [message["content"] for meeting in meetings for message in meeting["messages"]]
        return [_kind_case(chat) for chat in advice(conversations, texts)]
    return [_case(conversation, name) for conversation in read_lines(data / f"{name}.jsonl.gz")]


def _case(conversation: dict[str, Any], name: str) -> Case:
    rows = []
    for message in conversation["messages"]:
        speaker = f"{message['metadata'].get('speaker')}: " if name in NAMED else ""
        content = f"{speaker}{message['content']}"
        rows.append({**message, "run_id": None, "content": content})
    asked = [
        Question(
            each["question"],
            tuple(each["evidence"]),
            str(each.get("category")),
            f"{conversation['id']}/q{number}",
        )
        for number, each in enumerate(conversation.get("questions", ()))
        if each["evidence"] and each.get("category") != ADVERSARIAL
    ]
    return Case(conversation["id"], rows, asked)


def _made_case(conversation: Made) -> Case:
    asked = [
        Question(each.text, (each.answer,), each.kind, f"{conversation.language}/q{number}")
        for number, each in enumerate(conversation.questions)
    ]
    return Case(conversation.language, conversation.rows, asked)


def _kind_case(chat: Chat) -> Case:
    asked = [
        Question(q.text, tuple(q.evidence), q.kind, f"{chat.id}/q{number}", tuple(q.passages))
        for number, q in enumerate(chat.questions)
    ]
    return Case(chat.id, chat.rows, asked)
