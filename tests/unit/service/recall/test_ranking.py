from datetime import UTC, date, datetime, time, timedelta, timezone

import pytest

from formatters.model import Passage, Role
from service.recall.corpus import read_corpus
from service.recall.features import compute_features
from service.recall.question import read_question
from service.recall.ranking import LONG_WEIGHTS, WEIGHTS, find_matches, rank
from service.recall.terms import DEFAULT

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


def test_what_is_next_to_a_match_comes_before_the_rest() -> None:
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
    """Of passages that say the same, the one with a name is more relevant."""
    passages = chat(p4="We had tea with my friend there", p20="We had tea with Marianne there")

    assert best("Who was there for tea?", passages) == 20


def test_a_telling_stretch_of_a_long_session_gains() -> None:
    """In a meeting a match among others counts more than the same one alone."""
    filler = "We went on and on about this and that thing " * 8
    meeting = [Passage(f"{filler} {n}", Role.HUMAN, START) for n in range(120)]
    for place in (20, 80, 81, 82, 83, 84):
        meeting[place] = meeting[place]._replace(text=f"{filler} remote control {place}")
    scores = rank("What about the remote control?", meeting, NOW)

    assert scores[82] > scores[20]


def test_long_sessions_are_reported() -> None:
    """A meeting without a break is a long session wholly, an exchange of two is none."""
    meeting = [Passage("word " * 100, Role.HUMAN, START) for _ in range(80)]
    short = chat()
    untimed = [passage._replace(at=None) for passage in meeting]

    def longness(passages: list[Passage]) -> list[float]:
        return list(read_corpus(passages, DEFAULT).long)

    assert longness(meeting) == [1.0] * 80
    assert longness(short) == [0.0] * 40
    # without times a break is unknown
    assert longness(untimed) == [0.5] * 80


def test_a_session_gains_nothing_by_its_length() -> None:
    """What matches nothing scores no higher in a long session than in a short one."""
    filler = "We went on and on about this and that thing " * 4
    meeting = [Passage(f"{filler} {n}", Role.HUMAN, START) for n in range(120)]
    later = [
        Passage(f"{filler} {n}", Role.HUMAN, START + timedelta(days=n + 1)) for n in range(120)
    ]
    for passages in (meeting, later):
        passages[60] = passages[60]._replace(text="The remote control is red")
    scores = rank("What colour is the remote control?", [*meeting, *later], NOW)

    assert max(scores[:20]) <= scores[140]
    assert min(scores[60], scores[180]) > max(scores[:20])


def test_of_two_that_match_alike_the_shorter_comes_first() -> None:
    """What it costs counts as well."""
    long = "The tent is green, " + "and so on and so forth, as it were, with all of that, " * 6
    passages = chat(p4=long, p20="The tent is green, and so on")

    assert best("What colour is the tent?", passages) == 20


@pytest.mark.parametrize(
    ("question", "is_human"),
    [
        ("Which port did you suggest for the list?", False),
        ("What was your second suggestion for the port of the list?", False),
        ("Which port of the list is mine?", True),
        ("Do you remember which port I gave you for the list?", True),
        ("Did you know the port of the list?", True),
    ],
)
def test_who_spoke_counts_by_whom_the_question_is_about(question: str, is_human: bool) -> None:
    """A question about what the assistant said favours nobody."""
    answer = "To sort the list of ports, call sorted on the list. " * 12
    talk = [
        Passage(answer, Role.AI, START) if n % 2 else Passage(f"And what about {n}?", Role.HUMAN)
        for n in range(40)
    ]
    corpus = read_corpus(talk, DEFAULT)
    found = compute_features(read_question(question, talk, None), corpus)

    assert any(corpus.human)
    assert ("human" in found) is is_human


def test_with_an_assistant_of_long_answers_the_user_counts() -> None:
    """What the user says is found among long answers that have the same words."""
    answer = "To sort the list of ports, call sorted on the list. " * 12
    talk = [
        Passage(answer, Role.AI, START) if n % 2 else Passage(f"And what about {n}?", Role.HUMAN)
        for n in range(40)
    ]
    talk[16] = Passage("My list of ports is 80 and 443.", Role.HUMAN, START)
    assert best("Which ports are in my list?", talk) == 16

    peers = [passage._replace(text=passage.text[:40]) for passage in talk]
    found = read_corpus(peers, DEFAULT).human
    assert max(read_corpus(talk, DEFAULT).human) == 1
    assert max(found) < 1


def test_an_article_names_nobody() -> None:
    """Speakers called A and B are found by their names, and not by the word "a"."""
    passages = chat(p4="A: We saw it", p20="B: We saw it")
    found = compute_features(
        read_question("Who saw a boat with B?", passages, NOW), read_corpus(passages, DEFAULT)
    )

    assert [place for place, value in enumerate(found["named"]) if value] == [20]


def test_scores_are_the_same_each_time() -> None:
    """The same passages have the same scores, in any number."""
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


def test_parts_of_a_message_alone_are_scored() -> None:
    """Without the beginning of the message."""
    parts = [Passage(f"Soup {n}", Role.AI, START, continues=True) for n in range(3)]

    assert max(rank("Which soup?", parts, NOW)) > 0


@pytest.mark.parametrize("edge", [date.min, date.max])
def test_days_at_the_edge_of_the_calendar(edge: date) -> None:
    """A moment that no zone can shift is still a day."""
    east = NOW.astimezone(timezone(timedelta(hours=9)))
    west = NOW.astimezone(timezone(timedelta(hours=-9)))
    for hour, now in ((0, west), (23, east)):
        at = datetime.combine(edge, time(hour), UTC)
        assert len(rank("Tea in May 2020?", [Passage("Tea", Role.HUMAN, at)], now)) == 1


def test_the_whole_of_a_long_message_counts() -> None:
    """A passage gains by what the other passages of its message say."""
    parts = ("def open_gate(): ...", "It lets ships into the canal", "Tests come last")

    def lead(*, continues: bool) -> float:
        said = [
            Passage(text, Role.AI, None, None, continues and text in parts[1:]) for text in parts
        ]
        said += [Passage(f"Soup {n} for lunch", Role.HUMAN, None) for n in range(60)]
        scores = rank("Which function opens the canal?", [*said, Passage(parts[0], Role.AI, None)])
        return scores[0] - scores[-1]

    assert lead(continues=True) > lead(continues=False)


def test_every_weight_is_of_a_feature() -> None:
    """Every weight belongs to a feature, and every computed feature has a weight."""
    passages = [Passage(f"We talked of soup {n} " * 30, Role.HUMAN, START) for n in range(80)]
    passages[1] = passages[1]._replace(continues=True)
    passages[2] = passages[2]._replace(text="Anna: I had soup")
    corpus = read_corpus(passages, DEFAULT)
    # no question has all features: one that names a day isn't about now
    asked = ("Which food did Anna have in May 2025?", "What is the current soup?")
    found = [compute_features(read_question(each, passages, NOW), corpus) for each in asked]

    assert WEIGHTS.keys() | LONG_WEIGHTS.keys() == found[0].keys() | found[1].keys()
    assert {len(column) for each in found for column in each.values()} == {len(passages)}


def said(number: int) -> Passage:
    """Return a passage after those of `chat`; many of them are a long session."""
    part = number % 7 == 3
    at = None if part else NOW + timedelta(minutes=number * (1 + number // 350 * 60))
    text = f"We had soup {number}? " * (1 + number % 30)
    return Passage(text, Role.AI if number % 3 else Role.HUMAN, at, continues=part)


def test_a_history_that_was_ranked_before_has_the_same_scores() -> None:
    """What is kept between builds changes no score, whatever was asked before."""
    questions = ["soup", "Who painted the kitchen?", "and then?", "soup in May 2025", "drums"]

    def rank_fresh(question: str, passages: list[Passage]) -> list[float]:
        read_corpus([passages[0]._replace(speaker=Role.OTHER)], DEFAULT)  # replaces what is kept
        return rank(question, passages, NOW)

    passages = chat()
    for question in questions * 2:
        assert rank(question, passages, NOW) == rank_fresh(question, passages)
    # new rows, and a row less
    longer = [*passages, *map(said, range(400))]
    for given in (*(longer[:count] for count in (41, 42, 50, 200, 440)), longer[1:], passages):
        scores = [rank(question, given, NOW) for question in questions]
        assert scores == [rank_fresh(question, given) for question in questions]


def test_similarity_changes_nothing_that_is_kept() -> None:
    """Passages differ in their similarity to each question, and are analyzed once."""
    passages = chat()
    similar = [passage._replace(similarity=0.5) for passage in passages]

    assert read_corpus(similar, DEFAULT) is read_corpus(passages, DEFAULT)
    moved = [passages[0]._replace(speaker=Role.OTHER), *passages[1:]]
    assert read_corpus(moved, DEFAULT) is not read_corpus(passages, DEFAULT)
    assert read_corpus(passages, "german") is not read_corpus(passages, DEFAULT)


def test_an_index_finds_what_a_search_without_it_does() -> None:
    """It is made for a later question, and extended with the passages."""
    passages = [Passage(f"Word{n % 3} and rain", Role.HUMAN, START) for n in range(9)]
    terms = ("word1", "rain", "other")
    found = []
    for size in (7, 7, 7, 7, 8, 9):
        postings = read_corpus(passages[:size], "english").stems.find(terms)
        found.append({term: list(places) for term, places in postings.items()})

    assert found[0] == {"word1": [(1, 1), (4, 1)], "rain": [(n, 1) for n in range(7)], "other": []}
    assert found[1:4] == [found[0]] * 3
    assert found[5] == {
        "word1": [(1, 1), (4, 1), (7, 1)],
        "rain": [(n, 1) for n in range(9)],
        "other": [],
    }


def test_of_what_is_so_now_newer_sessions_score_higher() -> None:
    """Unless the question names a day; other questions don't care."""
    passages = [
        Passage(f"The dose is {number} mg", Role.HUMAN, NOW - timedelta(days=90 - number))
        for number in (20, 40, 60)
    ]

    def scores(question: str) -> list[float]:
        return rank(question, passages, NOW)

    now, ever, dated = map(scores, ("The current dose?", "The dose?", "The current dose in 1999?"))
    assert now[0] < now[1] < now[2]
    assert ever[0] == ever[1] == ever[2]
    assert dated[0] == dated[1] == dated[2]


def test_a_match_has_a_word_of_the_question() -> None:
    """In any form, or of a kind, or half of its runs of letters; an ending is no match."""
    passages = [Passage("Which one took the keys to the bingo?", Role.HUMAN)]

    assert any(find_matches("key", passages, NOW))
    assert any(find_matches("Which games?", passages, NOW))
    assert any(find_matches("What was said yesterday?", passages, NOW))
    assert any(find_matches("bingoo", passages, NOW))
    assert not any(find_matches("🙂", passages, NOW))
    assert not any(find_matches("And when was that?", passages, NOW))
    assert not any(find_matches("👍", [Passage("👍", Role.HUMAN)], NOW))
    assert not any(find_matches("xylophone", passages, NOW))
    assert not any(find_matches("key", [], NOW))
