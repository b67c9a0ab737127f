"""Made conversations of kinds that the data lacks, the same for the same seed.

`bursts` are chats between friends: messages of `locomo` are split into short ones, two talks go on
at once, and one person of each writes without capitals. `code` are long chats with an assistant:
messages of `locomo` are paragraphs of messages of up to 10,000 characters, between code and
documentation of Python's standard library, which has to be of the same version for the same set.
`advice` are chats with an assistant in prose, of `locomo` and of what is said in meetings.
"""

import ast
import random
import re
import sysconfig
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.recall.terms import terms

SEED: Final = 20
#: Questions that have no answer in the conversation.
ADVERSARIAL: Final = 5


class Asked(NamedTuple):
    """A question, the ids of what answers it, and its kind."""

    text: str
    evidence: Sequence[str]
    kind: str
    #: Of each message, the passage that answers; empty where a message answers as a whole.
    passages: Sequence[str] = ()


class Chat(NamedTuple):
    """A conversation with questions."""

    id: str
    rows: Sequence[dict[str, Any]]
    questions: Sequence[Asked]


# --- friends ---------------------------------------------------------------------------------

#: The least number of characters of a burst, about.
BURST: Final = 30
#: The parts of a conversation that go into chats of their own.
PARTS: Final = 4
#: The chance that a short reaction follows a message.
REACTION: Final = 0.08
_REACTIONS: Final = ("haha", "omg", "😂", "lol", "aww", "ok", "no way", "👍", "wait what", "same")
_BREAK: Final = re.compile(r"(?<=[.!?])\s+|(?<=[,;])\s+|\s+-+\s+|\s+(?=(?:and|but|so|because)\s)")
_DATED: Final = re.compile(
    r"\b(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|(?:19|20)\d\d)\b"
)

Talk = Sequence[Mapping[str, Any]]


def bursts(conversations: Sequence[Mapping[str, Any]], seed: int = SEED) -> Iterator[Chat]:
    """Yield chats of two talks each, of about 900 messages.

    A question is asked in each chat that has some of its evidence: of a message, the bursts with
    most words of the answer, or all if none has one. The second talk gets the times of the first
    one, so questions on it that name a month or a year are left out.
    """
    draw = random.Random(seed)  # noqa: S311 - to be repeatable, not secret
    following = [*conversations[1:], *conversations[:1]]
    for first, second in zip(conversations, following, strict=True):
        for part in range(0, PARTS, 2):
            yield _friends(draw, (first, part), (second, part + 1))


def _friends(draw: random.Random, *talks: tuple[Mapping[str, Any], int]) -> Chat:
    sessions = [_part(conversation, part) for conversation, part in talks]
    rows: list[dict[str, Any]] = []
    plain = {draw.choice(sorted(each["speakers"].values())) for each, _ in talks}
    for pair in zip_longest(*sessions, fillvalue=()):
        start = datetime.fromisoformat((pair[0] or pair[1])[0]["timestamp"])
        if rows:
            start = max(start, datetime.fromisoformat(rows[-1]["timestamp"]) + timedelta(hours=2))
        rows += _at_once(draw, pair, start, plain)
    by_message: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_message.setdefault(row["message"], []).append(row)
    asked = [
        Asked(question["question"], evidence, str(question["category"]))
        for number, (conversation, _) in enumerate(talks)
        for question in conversation["questions"]
        if question["category"] != ADVERSARIAL
        and not (number and _DATED.search(question["question"]))
        for evidence in [list(_answering(question, conversation["id"], by_message))]
        if evidence
    ]
    name = "+".join(f"{conversation['id']}.{part}" for conversation, part in talks)
    return Chat(name, rows, asked)


def _part(conversation: Mapping[str, Any], part: int) -> Sequence[Talk]:
    """Return the sessions of a part of a conversation."""
    sessions: dict[str, list[Mapping[str, Any]]] = {}
    for message in conversation["messages"]:
        named = {**message, "id": f"{conversation['id']}/{message['id']}"}
        sessions.setdefault(message["metadata"]["session"], []).append(named)
    edges = [len(sessions) * number // PARTS for number in range(PARTS + 1)]
    return [*sessions.values()][slice(*list(pairwise(edges))[part])]


def _at_once(
    draw: random.Random, pair: Sequence[Talk], at: datetime, plain: set[str]
) -> Iterator[dict[str, Any]]:
    """Yield the bursts of two talks, some messages of the one and then some of the other."""
    waiting, current = [list(talk) for talk in pair], 0
    while any(waiting):
        for message in _taken(waiting[current], draw.randint(1, 4)):
            speaker = message["metadata"]["speaker"]
            for number, text in enumerate(split_text(message["content"])):
                at += timedelta(seconds=draw.randint(2, 8))
                said = text.lower().rstrip(".") if speaker in plain else text
                yield _row(f"{message['id']}/{number}", message, f"{speaker}: {said}", at)
            if draw.random() < REACTION:
                other = {**message, "role": "ai" if message["role"] == "human" else "human"}
                yield _row(f"{message['id']}/r", {**other, "id": ""}, draw.choice(_REACTIONS), at)
            at += timedelta(seconds=draw.randint(5, 40))
        current = 1 - current


def _taken(waiting: list[Mapping[str, Any]], count: int) -> Talk:
    taken, waiting[:] = waiting[:count], waiting[count:]
    return taken


def _row(id_: str, message: Mapping[str, Any], content: str, at: datetime) -> dict[str, Any]:
    return {
        "id": id_,
        "message": message["id"],
        "run_id": None,
        "role": message["role"],
        "content": content,
        "timestamp": at.isoformat(),
        "metadata": {},
    }


def split_text(text: str) -> list[str]:
    """Return a text in bursts: its sentences and clauses, short ones together."""
    pieces = [""]
    for piece in _BREAK.split(text):
        if len(pieces[-1]) < BURST or not piece:
            pieces[-1] = f"{pieces[-1]} {piece}".strip()
        else:
            pieces.append(piece)
    return [piece for piece in pieces if piece]


def _answering(
    question: Mapping[str, Any], conversation: str, by_message: Mapping[str, Talk]
) -> Iterator[str]:
    answer = terms(str(question["answer"]))
    for id_ in question["evidence"]:
        rows = by_message.get(f"{conversation}/{id_}", ())
        shared = [len(answer.keys() & terms(row["content"]).keys()) for row in rows]
        most = max(shared, default=0)
        yield from (row["id"] for row, count in zip(rows, shared, strict=True) if count == most)


# --- chats with code -------------------------------------------------------------------------

#: Characters of a message at most, and of the code that a user adds.
LONGEST: Final = 10_000
USER_PADDING: Final = 1_500
#: The power that makes long messages rarer than short ones.
SKEW: Final = 4
#: The chance that the assistant says a message of `locomo`, and that the user adds code.
BY_ASSISTANT: Final = 0.25
WITH_CODE: Final = 0.2
#: Questions about code in a chat, and words of the summary that they ask with at least.
ABOUT_CODE: Final = 30
SUMMARY: Final = 6
_NOTHING: Final = {"human": "Go on.", "ai": "Noted."}
_FORMS: Final = ("Which code was it that would {0}?", "Where did we see this: {0}?")
#: Characters of a function, and of a paragraph.
FUNCTION: Final = range(200, 3_000)
PARAGRAPH: Final = range(150, 2_000)
#: Folders of the standard library: that of its single modules, and some of its packages.
PACKAGES: Final = ("", "asyncio", "concurrent/futures", "email", "http", "json", "logging", "xml")


class Function(NamedTuple):
    """A function: the summary of its docstring, and its code without the docstring."""

    summary: str
    code: str


def code(conversations: Sequence[Mapping[str, Any]], seed: int = SEED) -> Iterator[Chat]:
    """Yield a chat with an assistant for each conversation, of about 150,000 tokens.

    Two messages of the conversation go into an exchange, mostly into what the user says. Besides
    its questions, some ask for a function by the summary of its docstring, which is not shown.
    """
    draw = random.Random(seed)  # noqa: S311 - to be repeatable, not secret
    for conversation in conversations:
        yield _assisted(draw, conversation)


def _assisted(draw: random.Random, conversation: Mapping[str, Any]) -> Chat:
    functions, prose = library()
    pieces: list[Function | str] = [*functions, *prose]
    draw.shuffle(pieces)
    rows: list[dict[str, Any]] = []
    holders: dict[str, tuple[str, str]] = {}
    shown: list[tuple[Function, str]] = []
    messages = conversation["messages"]
    for number in range(0, len(messages), 2):
        said: dict[str, list[Mapping[str, Any]]] = {"human": [], "ai": []}
        for message in messages[number : number + 2]:
            said["ai" if draw.random() < BY_ASSISTANT else "human"].append(message)
        for role, reported in said.items():
            id_ = f"{role}{number}"
            parts = _padding(draw, pieces, by_user=role == "human")
            texts = [part if isinstance(part, str) else _fenced(part.code) for part in parts]
            shown += [(part, id_) for part in parts if isinstance(part, Function)]
            for message in reported:
                line = f"{message['metadata']['speaker']}: {message['content']}"
                texts.insert(draw.randint(0, len(texts)), line)
                holders[message["id"]] = (id_, line)
            at = datetime.fromisoformat(messages[number]["timestamp"])
            at += timedelta(seconds=10 * (role == "ai"))
            content = "\n\n".join(texts) or _NOTHING[role]
            rows.append(
                {"id": id_, "run_id": None, "role": role, "content": content}
                | {"timestamp": at.isoformat(), "metadata": {}}
            )
    return Chat(conversation["id"], rows, [*_facts(conversation, holders), *_code(draw, shown)])


def _padding(
    draw: random.Random, pieces: list[Function | str], *, by_user: bool
) -> list[Function | str]:
    """Take code and prose from what is left of them: often much for the assistant's messages."""
    if by_user:
        room = USER_PADDING * (draw.random() < WITH_CODE)
    else:
        room = int(LONGEST * 0.95 * draw.random() ** SKEW)
    taken: list[Function | str] = []
    while pieces:
        piece = pieces[-1]
        room -= len(piece if isinstance(piece, str) else piece.code) + 20
        if room < 0:
            return taken
        taken.append(pieces.pop())
    return taken


def _fenced(text: str) -> str:
    return f"```python\n{text}\n```"


def _facts(
    conversation: Mapping[str, Any], holders: Mapping[str, tuple[str, str]]
) -> Iterator[Asked]:
    for question in conversation["questions"]:
        held = [holders[id_] for id_ in question["evidence"] if id_ in holders]
        if held and question["category"] != ADVERSARIAL:
            ids, lines = zip(*held, strict=True)
            yield Asked(question["question"], ids, str(question["category"]), lines)


def _code(draw: random.Random, shown: Sequence[tuple[Function, str]]) -> Iterator[Asked]:
    """Ask for functions by their summaries."""
    asked = [each for each in shown if len(each[0].summary.split()) >= SUMMARY]
    for function, id_ in draw.sample(asked, min(ABOUT_CODE, len(asked))):
        form = draw.choice(_FORMS)
        text = form.format(function.summary.rstrip(".").lower())
        yield Asked(text, (id_,), "code", (function.code,))


# --- chats with an assistant in prose ----------------------------------------------------------

_REQUESTS: Final = (
    "Can you help me plan the rest of my week?",
    "What would you suggest?",
    "Could you write a short note about it?",
    "Any tips for that?",
    "By the way, how do I keep track of it all?",
    "Can you recommend something similar?",
    "What should I know before I start?",
    "Could you sum up the main points for me?",
)
#: Characters of the least text of a meeting, and of the most that a user says of one.
LEAST_TEXT: Final = 120
MOST_SAID: Final = 400
#: The chance that a user says something else before a message of `locomo`.
WITH_MORE: Final = 0.5
#: Texts of an answer at most, and numbers of exchanges that follow one with such a message.
MOST_TEXTS: Final = 5
FURTHER: Final = (0, 0, 1, 2)


def advice(
    conversations: Sequence[Mapping[str, Any]], texts: Sequence[str], seed: int = SEED
) -> Iterator[Chat]:
    """Yield a chat with an assistant for each speaker of a conversation, of some 1,150 messages.

    The user says what the speaker says, mostly with other things, and asks in the first person. All
    else is of ``texts``, which are said in meetings, and asked or answered as if it were a subject.
    """
    draw = random.Random(seed)  # noqa: S311 - to be repeatable, not secret
    texts = [text for text in texts if len(text) >= LEAST_TEXT]
    for conversation in conversations:
        for role, name in conversation["speakers"].items():
            yield _advised(draw, conversation, (role, name), texts)


def _advised(
    draw: random.Random,
    conversation: Mapping[str, Any],
    speaker: tuple[str, str],
    texts: Sequence[str],
) -> Chat:
    role, name = speaker
    rows: list[dict[str, Any]] = []
    said = {m["id"]: m["content"] for m in conversation["messages"] if m["role"] == role}
    holders: dict[str, str] = {}
    for message in conversation["messages"]:
        if message["id"] not in said:
            continue
        at = datetime.fromisoformat(message["timestamp"])
        for further in range(1 + draw.choice(FURTHER)):
            parts = [message["content"]] if not further else []
            if further or draw.random() < WITH_MORE:
                parts.insert(0, draw.choice(texts)[: draw.randint(LEAST_TEXT, MOST_SAID)])
            answer = [draw.choice(texts) for _ in range(draw.randint(1, MOST_TEXTS))]
            spoken = {
                "human": " ".join([*parts, draw.choice(_REQUESTS)]),
                "ai": "\n\n".join(answer),
            }
            if not further:
                holders[message["id"]] = str(len(rows))
            for by, content in spoken.items():
                at += timedelta(seconds=20)
                row = {"id": str(len(rows)), "run_id": None, "role": by, "content": content}
                rows.append({**row, "timestamp": at.isoformat(), "metadata": {}})
    asked = [
        Asked(
            _in_first_person(question["question"], name),
            [holders[id_] for id_ in question["evidence"]],
            str(question["category"]),
            [said[id_] for id_ in question["evidence"]],
        )
        for question in conversation["questions"]
        if question["category"] != ADVERSARIAL
        and name in question["question"]
        and question["evidence"]
        and holders.keys() >= {*question["evidence"]}
    ]
    return Chat(f"{conversation['id']}/{role}", rows, asked)


def _in_first_person(question: str, name: str) -> str:
    """Return a question on a person as this person asks it, nearly."""
    own = re.sub(rf"\b{re.escape(name)}['’]s\b", "my", question)
    own = re.sub(rf"\b{re.escape(name)}\b", "I", own)
    for wrong, right in (("does I", "do I"), ("is I", "am I"), ("has I", "have I")):
        own = re.sub(rf"\b{wrong}\b", right, own, flags=re.IGNORECASE)
    return own


@cache
def library() -> tuple[Sequence[Function], Sequence[str]]:
    """Return the functions with a docstring, and paragraphs of the docstrings of all else."""
    folder = Path(sysconfig.get_path("stdlib"))
    files = [path for package in PACKAGES for path in sorted((folder / package).glob("*.py"))]
    functions: dict[str, Function] = {}
    prose: dict[str, None] = {}
    for path in files:
        source = path.read_text(encoding="utf-8")
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found = _function(node, lines)
                functions |= {found.code: found} if found and len(found.code) in FUNCTION else {}
            elif isinstance(node, ast.Module | ast.ClassDef):
                text = ast.get_docstring(node) or ""
                prose |= dict.fromkeys(p for p in text.split("\n\n") if len(p) in PARAGRAPH)
    return list(functions.values()), list(prose)


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> Function | None:
    """Return a function whose docstring has lines of its own and more after it, else None."""
    text, first, *after = ast.get_docstring(node), *node.body
    if not (text and after and first.end_lineno and node.end_lineno):
        return None
    kept = [*lines[node.lineno - 1 : first.lineno - 1], *lines[first.end_lineno : node.end_lineno]]
    summary = " ".join(text.partition("\n\n")[0].split()).partition(". ")[0]
    return Function(summary, textwrap.dedent("\n".join(kept)).strip())
