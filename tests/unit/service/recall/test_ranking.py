from datetime import UTC, date, datetime, time, timedelta, timezone

import pytest

from formatters.model import Passage, Role
from service.recall.features import compute_features
from service.recall.question import read_question
from service.recall.ranking import LONG_WEIGHTS, WEIGHTS, rank

NOW = datetime(2025, 12, 10, 8, tzinfo=UTC)
START = datetime(2025, 5, 1, 12, tzinfo=UTC)

FILLING = [
    "I had soup for lunch and it was fine",
    "Nice, the weather keeps me inside these evenings",
    "My cousin plays the drums in a band downtown",
    "We painted the kitchen wall in a light green",
]


def chat(**placed: str) -> list[Passage]:
    """Return ten days of talk, one passage a day, with some passages replaced by place."""
    texts = [FILLING[place % 4] + f" {place}" for place in range(40)]
    for place, text in placed.items():
        texts[int(place[1:])] = text
    return [
        Passage(text, Role.AI if place % 2 else Role.HUMAN, START + timedelta(hours=6 * place))
        for place, text in enumerate(texts)
    ]


def best(question: str, passages: list[Passage]) -> int:
    """Return the place of the passage that scores highest."""
    scores = rank(question, passages, NOW)
    return scores.index(max(scores))


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Which boats did we rent?", "We rented a small boat by the lake"),
        ("What about photography?", "I bought a camera for photographs of birds"),
        ("Was haben wir über Boote gesagt?", "Das Boot war klein"),
        ("你什么时候买了相机？", "我昨天买了一台相机，很贵。"),
        ("いつカメラを買いましたか", "先月カメラを買ったんだ"),
        ("카메라를 언제 샀어?", "지난달에 카메라 샀는데 비쌌어"),
    ],
)
def test_what_answers_is_found(question: str, text: str) -> None:
    """The passage with the question's words, in whatever form, comes first in any language."""
    assert best(question, chat(p17=text)) == 17


def test_what_stands_beside_a_match_comes_before_the_rest() -> None:
    """An answer has seldom the words of the question: what was said right after counts too."""
    passages = chat(p8="Where did you put the spare key of the garage?")
    near = passages[9]._replace(at=passages[8].at, text="Under the blue pot")
    passages[9] = near
    scores = rank("Where is the spare key of the garage?", passages, NOW)

    assert sorted(scores)[-2] == scores[9]


def test_dates_and_names_count() -> None:
    """Of passages that say the same, that of the named day wins, or that of the named speaker."""
    same = "Tea with honey"
    passages = chat(p4=same, p20=same)
    assert best("Who had tea with honey on May 6?", passages) == 20
    assert best("Who had tea with honey on May 2?", passages) == 4

    passages = chat(p4=f"Ann: {same}", p20=f"Bob: {same}")
    assert best("What tea did Bob have?", passages) == 20
    assert best("What tea did Ann have?", passages) == 4


def test_a_passage_without_a_time_has_no_day() -> None:
    """A question that names a day finds it by its words alone, also without its moment."""
    passages = chat(p4="Tea with honey")
    passages = [*passages[:20], Passage("Tea with honey", Role.HUMAN), *passages[21:]]

    assert best("Who had tea with honey on May 2?", passages) == 4
    naive = rank("Who had tea with honey on May 2?", passages, None)
    assert naive.index(max(naive)) == 4


def test_a_passage_that_asks_counts_less_than_one_that_tells() -> None:
    """The question put before is not its answer."""
    assert (
        best("What colour is the tent?", chat(p4="The tent colour?", p20="The tent colour.")) == 20
    )


def test_a_passage_with_names_comes_before_one_without() -> None:
    """Of passages that say the same, the one that names somebody tells more."""
    passages = chat(p4="We had tea with my friend there", p20="We had tea with Marianne there")

    assert best("Who was there for tea?", passages) == 20


def test_what_stands_in_a_telling_stretch_of_a_long_session_gains() -> None:
    """In a meeting a match among others counts more than the same one alone."""
    filler = "We went on and on about this and that thing " * 8
    meeting = [Passage(f"{filler} {n}", Role.HUMAN, START) for n in range(120)]
    for place in (20, 80, 81, 82, 83, 84):
        meeting[place] = meeting[place]._replace(text=f"{filler} remote control {place}")
    scores = rank("What about the remote control?", meeting, NOW)

    assert scores[82] > scores[20]


def test_long_sessions_are_told() -> None:
    """A meeting without a break is a long session wholly, an exchange of two is none."""
    meeting = [Passage("word " * 100, Role.HUMAN, START) for _ in range(80)]
    short = chat()

    def longness(passages: list[Passage]) -> list[float]:
        return list(compute_features(read_question("word", passages, NOW), passages)["long"])

    assert longness(meeting) == [1.0] * 80
    assert longness(short) == [0.0] * 40


def test_scores_are_the_same_each_time() -> None:
    """The same passages have the same scores, as many as there are."""
    passages = chat()

    assert rank("soup", passages, NOW) == rank("soup", passages, NOW)
    assert len(rank("soup", passages)) == 40
    assert rank("soup", []) == []


@pytest.mark.parametrize("text", ["", "?", "\x00", "👍", "a" * 5_000, "\ud83d", "字" * 5_000])
def test_odd_texts_are_scored(text: str) -> None:
    """Any question and any passage has a finite score."""
    for question, passage in ((text, "boat"), ("boat", text), (text, text)):
        (score,) = rank(question, [Passage(passage, Role.OTHER)], NOW)
        assert -10 < score < 40


@pytest.mark.parametrize("edge", [date.min, date.max])
def test_days_at_the_edge_of_the_calendar(edge: date) -> None:
    """A moment that no zone can shift is still a day."""
    east = NOW.astimezone(timezone(timedelta(hours=9)))
    west = NOW.astimezone(timezone(timedelta(hours=-9)))
    for hour, now in ((0, west), (23, east)):
        at = datetime.combine(edge, time(hour), UTC)
        assert len(rank("Tea in May 2020?", [Passage("Tea", Role.HUMAN, at)], now)) == 1


def test_every_weight_is_of_a_feature() -> None:
    """No weight is of a name that there is not, and nothing is computed for none."""
    passages = chat()
    found = compute_features(read_question("soup", passages, NOW), passages)

    assert WEIGHTS.keys() | LONG_WEIGHTS.keys() | {"long"} == found.keys()
    assert {len(column) for column in found.values()} == {len(passages)}
