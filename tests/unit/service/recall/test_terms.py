"""What rows are found by."""

import pytest

from formatters.model import Passage, Role
from service.recall.question import QUESTION_TERMS, question_terms
from service.recall.terms import MAX_ROW_TERMS, analyze, row_terms, term_rules, words


def test_a_row_is_found_by_stems_and_words() -> None:
    """Stop words are left out; a word in another form has the same stem."""
    assert row_terms("We decided about the boats") == ("decid", "boat", "decided", "boats")
    assert set(row_terms("the boat")) & set(question_terms("Which boats?", ())) == {"boat"}


def test_irregular_forms_are_found_by_each_other() -> None:
    """In English only: "made" is a maggot in German."""
    assert {"go", "child"} <= set(row_terms("the children went there")) & set(
        question_terms("Where did the child go?", ())
    )
    assert analyze("Made", "german").stems == {"mad": 1}


def test_a_row_shows_its_language_or_is_found_by_its_words() -> None:
    """A word of a question in another language's form is found by itself."""
    assert "boot" in row_terms("Wir waren mit den Booten auf dem See")
    assert "boote" in set(row_terms("Boote!")) & set(question_terms("Wo sind die Boote jetzt?", ()))


def test_characters_without_blanks_come_in_pairs() -> None:
    """And Han characters alone as well; no longer run of them is a term of its own."""
    assert row_terms("琵琶湖") == ("琵琶", "琶湖", "琵", "琶", "湖")


def test_all_that_is_shown_of_a_row_finds_it() -> None:
    """500 characters, each another one, with their pairs."""
    reported = "".join(chr(0x4E00 + n) for n in range(500))
    assert {reported[-2:], reported[-1]} <= set(row_terms(reported))


def test_each_text_of_a_row_has_a_language() -> None:
    """What is said is German, the arguments of a call aren't; a term of both counts once."""
    said = "Wir waren mit den Booten auf dem See"
    assert row_terms(said, "look booten boats") == (*row_terms(said), "look", "boat", "boats")


@pytest.mark.parametrize("text", ["We decided about the boats", "Boote auf dem See", "琵琶湖 trip"])
def test_tools_are_found_by_the_same_terms(text: str) -> None:
    """As if a human said what a call or a result has."""
    assert row_terms("", text) == row_terms(text)


def test_a_question_without_words_asks_for_those_of_the_last_turn() -> None:
    """'And when was that?' is about what was just said."""
    said = [Passage("The boats came back", Role.HUMAN)]
    assert question_terms("and when was that?", said) == ("boat", "come", "back")
    assert question_terms("and when was that?", ()) == ()


def test_names_in_code_have_the_words_within_them() -> None:
    """A question in plain words finds camelCase as it finds snake_case; other names stay whole."""
    names = ["parsehttpurl", "maxretries", "max", "size", "of", "ceos", "lebron"]
    within = ["parse", "http", "url", "max", "retries"]
    assert words("parseHTTPUrl(maxRetries, max_size) of CEOs, LeBron") == [*names, *within]
    assert words("打开openGate")[-2:] == ["open", "gate"]


def test_what_is_written_and_asked_is_bounded() -> None:
    """Of pasted texts the terms at both ends count, of a long row the first."""
    numbers = [str(number) for number in range(5_000)]
    assert len(row_terms(" ".join(numbers))) == MAX_ROW_TERMS
    asked = question_terms(" ".join(numbers), ())
    assert len(asked) == 2 * QUESTION_TERMS
    assert (asked[0], asked[-1]) == ("0", "4999")


def test_the_rules_have_the_name_that_databases_have_noted() -> None:
    """Where this fails, rows are found by other terms than before, and need `ctxb db reindex`.

    Write the new name here, and into the list of changes that an upgrade needs that command.
    """
    assert term_rules() == "6-091920df1281"
