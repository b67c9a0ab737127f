import pytest

from formatters.model import Passage, Role
from service.recall.question import (
    ASKING_WEIGHT,
    HAN_HIRAGANA_WEIGHT,
    HAN_WEIGHT,
    HIRAGANA_WEIGHT,
    LAST_TURN_WEIGHT,
    STOP_HAN_WEIGHT,
    read_question,
    without_speakers,
)

CHAT = [
    Passage("We sold the red kayak", Role.HUMAN),
    Passage("For how much?", Role.AI),
    Passage("The museum opens at nine", Role.HUMAN),
    Passage("Then let us visit the museum on Sunday", Role.AI),
]


def test_a_question_is_its_own_words() -> None:
    """A question with words of its own borrows none."""
    asked = read_question("When does the museum open, museum lovers?", CHAT, None)

    assert asked.stems["museum"] == 2
    assert "sunday" not in asked.stems


def test_a_follow_up_takes_the_words_of_the_last_turn() -> None:
    """Where no word is left, the last turn's count, but less, and older ones do not."""
    asked = read_question("And when was that?", CHAT, None)

    assert asked.stems["museum"] == LAST_TURN_WEIGHT
    assert asked.grams["_mus"] == LAST_TURN_WEIGHT
    assert "kayak" not in asked.stems


def test_an_answer_far_from_its_question_is_taken_alone() -> None:
    """Only the newest n passages are the last turn."""
    chat = [Passage("The kayak?", Role.HUMAN), *[Passage("A museum", Role.AI)] * 3]

    assert "kayak" not in read_question("And that?", chat, None).stems


def test_the_language_is_that_of_the_conversation() -> None:
    """A short question has the language of what was said before it."""
    german = [Passage("Wir haben das Boot gestern auf dem See gesehen", Role.HUMAN)] * 3

    assert read_question("Boot?", german, None).language == "german"
    assert read_question("Boat?", [], None).language == "english"


def test_a_question_in_a_language_of_its_own_keeps_it() -> None:
    """What answers it is mostly in its language, though the newest messages aren't."""
    german = [Passage("Ich habe das Boot gekauft und es ist sehr gut", Role.HUMAN)] * 8
    asked = read_question("What was the name of the harbour?", [*CHAT, *german], None)

    assert asked.language == "english"
    assert asked.stems.keys() == {"name", "harbour"}
    assert read_question("Boot?", [*CHAT, *german], None).language == "german"


def test_endings_count_less() -> None:
    """Pairs of Hiragana are mostly endings, so they count less than others."""
    asked = read_question("飛行機でしたか", CHAT, None)

    assert asked.stems["飛行"] == 1
    assert {asked.stems[pair] for pair in ("した", "たか") if pair in asked.stems} <= {
        HIRAGANA_WEIGHT
    }
    assert HIRAGANA_WEIGHT in asked.stems.values()


def test_a_long_question_is_read_at_its_ends() -> None:
    """What was pasted doesn't hide what is asked before it or behind it."""
    asked = read_question(
        "Find the kayak. " + "x " * 9_000 + "middle " * 9_000 + "museum?", [], None
    )

    assert {"kayak", "museum"} <= asked.stems.keys()
    assert len(asked.text) < 5_000


def test_what_asks_is_no_subject() -> None:
    """Words that ask in Chinese, Japanese and Korean run into no other, and count nothing."""
    chinese = read_question("之前聊过的相机在哪里？", [], None).stems
    japanese = read_question("旅館について、何と言っていましたか？", [], None).stems
    korean = read_question("언제 바다에 갔어?", [], None).stems

    assert set(chinese) == {"相机", "机在", "相", "机", "在"}
    assert "旅館" in japanese
    assert not {"館に", "何", "言"} & japanese.keys()
    assert "바다" in korean
    assert "언제" not in korean


def test_a_follow_up_without_blanks_borrows_too() -> None:
    """If a question has only question words, the last turn gives the subject."""
    chat = [Passage("我买了相机", Role.HUMAN), Passage("多少钱？", Role.AI)]

    assert read_question("什么时候？", chat, None).stems["相机"] == LAST_TURN_WEIGHT


def test_small_words_and_single_characters_count_less() -> None:
    """In Chinese a pair with a small word; in Japanese one with an ending, but not its stem."""
    chinese = read_question("我买相机", [], None).stems
    assert (chinese["相机"], chinese["我买"], chinese["相"]) == (1, STOP_HAN_WEIGHT, HAN_WEIGHT)

    japanese = read_question("旅館で食べる", [], None).stems
    assert (japanese["旅館"], japanese["食べ"], japanese["食"]) == (1, HAN_HIRAGANA_WEIGHT, 1)
    assert japanese["館"] == HAN_WEIGHT


def test_an_english_question_has_the_kinds_of_what_it_names() -> None:
    """Neither those of names, nor of stop words, nor the words of the question itself."""
    asked = read_question("Which instruments does Rose play, a violin?", CHAT, None)

    assert "thermomet" in asked.kinds
    assert not {"tearos", "violin"} & asked.kinds


def test_a_question_in_another_language_has_no_kinds() -> None:
    """The table is of English words."""
    german = [Passage("Wir haben das Boot gestern auf dem See gesehen", Role.HUMAN)] * 3

    assert not read_question("Welche instrument hat er?", german, None).kinds


@pytest.mark.parametrize(
    ("question", "without"),
    [
        ("What does Tim's brother read?", "What does  brother read?"),
        ("Did Ann Lee meet Tim?", "Did   meet ?"),
        ("Will they meet in May?", "Will they meet in May?"),
        ("Tim?", "Tim?"),
        ("Where is Timbuktu?", "Where is Timbuktu?"),
        ("Tim", "Tim"),
    ],
)
def test_speakers_are_left_out(question: str, without: str) -> None:
    """Their names are whole words. Names that are other words stay, as do questions of names."""
    speakers = ("Tim", "Ann Lee", "Will", "May")

    assert without_speakers(question, [f"{name}: Hi" for name in speakers * 2]) == without


def test_a_word_before_a_single_colon_is_no_speaker() -> None:
    """Speakers speak more than once."""
    texts = ["Note: Tim is away", "tim: hi", "tim: hi"]

    assert without_speakers("Who wrote the Note to Tim?", texts) == "Who wrote the Note to Tim?"


def test_a_long_opening_is_no_name() -> None:
    """A text of somebody else's can't make a pattern of any size."""
    texts = [f"{'A' + 'b' * 1_000}: hi"] * 2

    assert without_speakers(f"What did {texts[0][:-4]} say?", texts).count("b") == 1_000


@pytest.mark.parametrize("said", ["What did you advise?", "Tell me more, please.", "Which ones?"])
def test_a_question_that_asks_on_takes_the_words_of_the_last_turn(said: str) -> None:
    """What it has are words of asking; with a subject of its own it borrows none."""
    asked = read_question(said, CHAT, None)
    assert asked.has_terms
    assert set(asked.stems.values()) == {ASKING_WEIGHT, LAST_TURN_WEIGHT}
    assert asked.stems["museum"] == LAST_TURN_WEIGHT

    asked = read_question(f"{said} About the boat, I mean.", CHAT, None)
    assert "boat" in asked.stems
    assert "museum" not in asked.stems
    assert "museum" not in read_question("examples", CHAT, None).stems


@pytest.mark.parametrize(
    ("said", "subject"),
    [
        ("List all gifts for Ann", {"gift", "ann"}),
        ("Can you please give me a list of gifts?", {"gift"}),
        ("Tell me who came by boat", {"come", "boat"}),
        ("List price of the boat?", {"list", "price", "boat"}),
        ("What is on the list?", {"list"}),
    ],
)
def test_the_verb_of_a_request_is_no_subject(said: str, subject: set[str]) -> None:
    """Whatever is listed, the word itself is found nowhere."""
    assert read_question(said, CHAT, None).stems.keys() == subject
