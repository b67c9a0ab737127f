from datetime import datetime
from typing import Any

import pytest

from bench.recall.bending import bent
from bench.recall.made import A_CHAT, made


@pytest.mark.parametrize(
    ("language", "text", "asked"),
    [
        ("zh", "他在看书。", ["看过书"]),
        ("zh", "恐怖电影", ["恐怖", "电影"]),
        ("ja", "本を読みました", ["読む"]),
        ("ja", "猫を飼っています", ["飼る"]),
        ("ja", "楽しかった", ["楽しい"]),
        ("ja", "結婚しました", ["結婚する"]),
        ("ja", "観葉植物", ["植物の観葉"]),
        ("ko", "커피를 마셨어", ["마시는", "커피는"]),
        ("ko", "영화를 배웠어", ["배우는", "영화는"]),
        ("ko", "정말 행복해", ["행복했던"]),
        ("ko", "책을 먹었어", ["먹는"]),
        ("en", "walking dogs", ["walked", "dog"]),
        ("fr", "des voitures", ["voiture"]),
    ],
)
def test_words_are_requested_in_another_form(language: str, text: str, asked: list[str]) -> None:
    """Endings, particles and order are changed, and what the word starts with stays."""
    words = bent(text, language)

    assert [word.asked for word in words] == asked
    assert all(word.start in text for word in words)


def chat(number: int, *texts: str) -> dict[str, Any]:
    """Return an English chat, a message a minute."""
    messages = [
        {"id": f"m{n}", "content": text, "timestamp": f"2025-01-01T08:{n:02}:00Z"}
        for n, text in enumerate(texts)
    ]
    return {"id": f"c{number}", "lang": "en", "messages": messages}


def test_two_words_are_requested_that_only_the_answer_has_together() -> None:
    """Each of them is in other messages too, but rare; the pair is in none."""
    filling = [f"so it is {n}" for n in range(58)] * 2
    chats = [chat(1, "two boats at dawn"), chat(2, "a forest hides boats"), chat(3, "one forest")]
    (reported,) = made([*chats, chat(4, *filling[:58]), chat(5, *filling[58:])], ["en"])
    pairs = [each for each in reported.questions if each.kind == "en/two"]

    assert [each.answer for each in pairs] == ["c2/m0"]
    assert "boat" in pairs[0].text
    assert "forests" in pairs[0].text


def test_chats_follow_one_another() -> None:
    """A chat starts a day after the one before it, with its own pace."""
    (reported,) = made([chat(1, "one", "two"), chat(2, "three", "four")], ["en"])
    times = [datetime.fromisoformat(row["timestamp"]) for row in reported.rows]

    assert [(at - times[0]).total_seconds() for at in times] == [0, 60, 86_460, 86_520]


def test_no_chat_has_all_the_questions() -> None:
    """A chat gives n at most, and the same chats give the same ones."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    talk = chat(1, *(f"{letter * 3}boats" for letter in letters))
    (reported,) = made([talk], ["en"])

    assert len(reported.questions) == A_CHAT
    assert list(made([talk], ["en"])) == [reported]
