import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bench.recall import kinds
from bench.recall.cases import Case, Question, cases
from bench.recall.evidence import share_answered, share_kept
from bench.recall.kinds import LONGEST, advice, bursts, code, split_text


def conversation(name: str) -> dict[str, Any]:
    """Return a conversation of eight sessions of four messages, with a question on the first."""
    said = "Hi there, how are you today? I hid the spare key under a flowerpot, and it rained."
    messages = [
        {
            "id": f"D{session}:{number}",
            "role": "ai" if number % 2 else "human",
            "content": f"{said} This was talk {session}.",
            "timestamp": f"2025-01-0{session}T08:0{number}:00Z",
            "metadata": {"speaker": "Bob" if number % 2 else "Ann", "session": f"s{session}"},
        }
        for session in range(1, 9)
        for number in range(4)
    ]
    asked = {"question": "Where is the key?", "answer": "flowerpot", "category": 4}
    questions = [
        {**asked, "evidence": ["D1:0", "D8:3"]},
        {**asked, "category": 5, "evidence": ["D1:0"]},
        {**asked, "question": "Where was it in May?", "evidence": ["D3:0"]},
    ]
    speakers = {"human": "Ann", "ai": "Bob"}
    return {"id": name, "messages": messages, "questions": questions, "speakers": speakers}


def long_conversation(name: str) -> dict[str, Any]:
    """Return the same with messages long enough to be a text of a meeting."""
    given = conversation(name)
    messages = [
        {**each, "content": f"{each['content']} {'So. ' * 30}"} for each in given["messages"]
    ]
    return {**given, "messages": messages}


@pytest.fixture
def small_library(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Read one package of the standard library only."""
    monkeypatch.setattr(kinds, "PACKAGES", ("json",))
    kinds.library.cache_clear()
    yield
    kinds.library.cache_clear()


def test_a_text_is_split_into_bursts() -> None:
    """Each has some characters, and together they have all words."""
    text = conversation("c")["messages"][0]["content"]
    parts = split_text(text)

    assert " ".join(parts) == text
    assert min(map(len, parts[:-1])) >= kinds.BURST
    assert len(parts) == 2


def test_friends_talk_at_once() -> None:
    """Two talks mix, in the order of their times, and the burst with the answer is the evidence."""
    chats = list(bursts([conversation("a"), conversation("b")]))
    first = chats[0]
    texts = {row["id"]: row["content"] for row in first.rows}
    talks = [row["id"].partition("/")[0] for row in first.rows]
    changes = sum(one != other for one, other in pairwise(talks))

    assert [chat.id for chat in chats] == ["a.0+b.1", "a.2+b.3", "b.0+a.1", "b.2+a.3"]
    assert changes > 2
    assert len(texts) == len(first.rows)
    times = [row["timestamp"] for row in first.rows]
    assert times == sorted(times)
    assert [question.kind for question in first.questions] == ["4"]
    assert all("flowerpot" in texts[id_] for id_ in first.questions[0].evidence)


def test_dated_questions_on_the_second_talk_are_left_out() -> None:
    """Its times are those of the first talk, so a month would mislead."""
    chats = bursts([conversation("a"), conversation("b")])

    assert "Where was it in May?" not in {q.text for chat in chats for q in chat.questions}


@pytest.mark.usefixtures("small_library")
def test_chats_with_code_have_the_answer_in_a_long_message() -> None:
    """Each passage is in its message, and no message is too long."""
    (chat,) = code([conversation("a")])
    texts = {row["id"]: row["content"] for row in chat.rows}

    assert "```python" in "".join(texts.values())
    assert max(map(len, texts.values())) <= LONGEST
    assert {"4", "code"} <= {question.kind for question in chat.questions}
    for question in chat.questions:
        assert len(question.passages) == len(question.evidence)
        for id_, passage in zip(question.evidence, question.passages, strict=True):
            assert passage in texts[id_]


def test_a_user_asks_an_assistant_in_the_first_person() -> None:
    """The evidence is in what the user says, and other texts are around it."""
    given = conversation("a")
    questions = [{**each, "question": "Where is Ann's key?"} for each in given["questions"]]
    questions[0]["evidence"] = ["D1:0", "D8:2"]
    texts = [f"Text {number} of a meeting. " * 9 for number in range(20)]
    user, other = advice([{**given, "questions": questions}], texts)
    said = {row["id"]: row["content"] for row in user.rows}

    assert (user.id, other.id, other.questions) == ("a/human", "a/ai", [])
    assert [question.text for question in user.questions] == ["Where is my key?"] * 2
    assert [len(question.evidence) for question in user.questions] == [2, 1]
    for question in user.questions:
        for id_, passage in zip(question.evidence, question.passages, strict=True):
            assert passage in said[id_]
    assert {row["role"] for row in user.rows} == {"human", "ai"}
    assert sum("meeting" in text for text in said.values()) > len(said) / 2


@pytest.mark.usefixtures("small_library")
def test_the_sets_are_the_same_each_time(tmp_path: Path) -> None:
    """The data decides, and ids of questions are unique in a set."""
    for file_name in ("locomo", "qmsum"):
        with gzip.open(tmp_path / f"{file_name}.jsonl.gz", "wt") as file:
            file.write("\n".join(json.dumps(long_conversation(name)) for name in "ab"))

    for name in ("bursts", "code", "advice"):
        there = cases(tmp_path, name)
        assert there == cases(tmp_path, name)
        ids = [question.id for case in there for question in case.questions]
        assert len(set(ids)) == len(ids)


def test_passages_of_a_long_message_count_in_part() -> None:
    """Any 450 characters are all of it, fewer a share; a short message is there or not."""
    words = [f"word{number:04}" for number in range(400)]
    rows = [{"id": "long", "content": " ".join(words)}, {"id": "short", "content": "Yes, we did."}]
    long, short = Question("?", ("long",), "1"), Question("?", ("short",), "1")
    case = Case("c", rows, [long, short])

    assert share_kept(case, long, " ".join(words[:60])) == 1
    assert share_kept(case, long, " ".join(words[100:180])) == 1
    assert 0.2 < share_kept(case, long, " ".join(words[100:130])) < 1
    assert share_kept(case, long, " ".join(words[100:108])) == 0
    assert share_kept(case, short, "Yes, we") == 0


def test_the_passage_that_answers_is_counted_by_itself() -> None:
    """It is there or not, and blanks don't matter."""
    question = Question("?", ("m",), "1", passages=("the key is\nhere",))

    assert share_answered(question, "so the key is here now") == 1
    assert share_answered(question, "something else") == 0
    assert share_answered(Question("?", ("m",), "1"), "") is None
