"""Causes of failures are short, on one line, and tell no secret."""

from service.adapters.mcp.connection import MOST_CHARS, cause_of


def test_the_first_cause_of_a_group_is_told() -> None:
    """However deep it lies."""
    group = ExceptionGroup("many", [ExceptionGroup("more", [OSError("refused"), ValueError()])])
    assert cause_of(group) == "OSError: refused"
    assert cause_of(ExceptionGroup("many", [ValueError()])) == "ValueError"
    assert cause_of(TimeoutError("in some words")) == "no answer in time"


def test_strangers_words_are_bounded_and_secrets_masked() -> None:
    """A server may send pages of text, and a URL may hold a password."""
    told = cause_of(OSError(f"https://me:geheim@host/?token=geheim\n{'x' * 500}"))
    assert "geheim" not in told
    assert "\n" not in told
    assert len(told) < MOST_CHARS + 20
