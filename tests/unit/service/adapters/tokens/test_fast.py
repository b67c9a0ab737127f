"""A faster counter is used where it counts as tiktoken does, and only there."""

import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from formatters.rows import fix_surrogates
from service.adapters.tokens import tokenizers
from service.adapters.tokens.encodings import load_encoding
from service.adapters.tokens.fast import load_fast_count, samples
from service.adapters.tokens.tokenizers import TiktokenCounter

Count = Callable[[str], int]


class PanicError(BaseException):
    """Replaces pyo3's exception, which is no Exception either."""


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check again in each test."""
    monkeypatch.setattr(tokenizers, "load_fast_count", load_fast_count.__wrapped__)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Count], list[str]]:
    """Install a module that counts so, and return the list of what it is asked."""

    def installed(count: Count) -> list[str]:
        asked: list[str] = []

        def noted(text: str) -> int:
            text.encode()  # as the real one, it takes no lone surrogates
            asked.append(text)
            return count(text)

        fake = SimpleNamespace(truncate=lambda text, _most, _name: ("", noted(text)))
        monkeypatch.setitem(sys.modules, "toktok", fake)
        return asked

    return installed


Install = Callable[[Count], list[str]]


def exact(text: str) -> int:
    """Count as tiktoken does."""
    return len(load_encoding("cl100k_base").encode_ordinary(text))


def test_a_counter_that_agrees_is_used(install: Install) -> None:
    """Its counts equal tiktoken's, under the same name."""
    asked = install(exact)
    with capture_logs() as logs:
        counter = TiktokenCounter()
    assert logs == []
    asked.clear()

    assert counter.count("Hello, world!") == 4
    assert (counter.name, counter.exact) == ("cl100k_base", True)
    assert asked == ["Hello, world!"]


def test_what_unicode_has_not_assigned_is_left_to_tiktoken(install: Install) -> None:
    """Another version of Unicode may have it, and cut the text elsewhere."""
    asked = install(exact)
    counter = TiktokenCounter()
    asked.clear()

    assert counter.count("\U000323b0\\u001f") == exact("\U000323b0\\u001f")
    assert asked == []


def test_lone_surrogates_are_repaired_first(install: Install) -> None:
    """A text that the counter can't take is counted as tiktoken reads it."""
    asked = install(exact)
    counter = TiktokenCounter()
    text = "a\ud800b"

    assert counter.count(text) == exact(text)
    assert asked[-1] == fix_surrogates(text)


@pytest.mark.parametrize("odd", ["<|endoftext|>", "\r\n\r\n", "\N{THUMBS UP SIGN}"])
def test_a_counter_that_differs_anywhere_is_refused(odd: str, install: Install) -> None:
    """One text of the check is enough; then tiktoken counts."""
    install(lambda text: exact(text) + (odd in text))
    with capture_logs() as logs:
        counter = TiktokenCounter()

    assert [entry["event"] for entry in logs] == ["tokenizer.fast_refused"]
    assert counter.count(odd) == exact(odd)


def test_a_counter_that_panics_is_refused(install: Install) -> None:
    """Even where its panic is no Exception."""

    def panic(text: str) -> int:
        raise PanicError("overflow")

    install(panic)
    with capture_logs() as logs:
        assert load_fast_count.__wrapped__("cl100k_base") is None
    assert [entry["event"] for entry in logs] == ["tokenizer.failed", "tokenizer.fast_refused"]


def test_a_counter_that_fails_later_costs_no_count(install: Install) -> None:
    """Tiktoken counts the text that it fails on, and no other."""

    def count(text: str) -> int:
        if text == "the one text that nobody checked":
            raise PanicError("overflow")
        return exact(text)

    asked = install(count)
    counter = TiktokenCounter()
    with capture_logs() as logs:
        assert counter.count("the one text that nobody checked") == 6
        assert counter.count("another text") == 2
    assert [entry["event"] for entry in logs] == ["tokenizer.failed"]
    assert asked[-1] == "another text"


def test_a_module_that_lacks_the_tokenizer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version, or another package of that name, is not counted with."""
    monkeypatch.setitem(sys.modules, "toktok", SimpleNamespace())
    with capture_logs() as logs:
        assert load_fast_count.__wrapped__("cl100k_base") is None
    assert [entry["event"] for entry in logs] == ["tokenizer.fast_refused"]


def test_without_the_extra_tiktoken_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters that nobody requested are not logged."""
    monkeypatch.setitem(sys.modules, "toktok", None)
    with capture_logs() as logs:
        counter = TiktokenCounter()
    assert counter.count("Hello, world!") == 4
    assert logs == []


def test_the_check_is_wide() -> None:
    """More than 200 texts, with what tokenizers differ in."""
    texts = set(samples())
    whole = "".join(texts)

    assert len(texts) > 200
    for part in ("<|endoftext|>", "\r\n", "\u0301", "\u200d", "\x00", "天", "ط", "\ud83d"):
        assert part in whole
    assert max(map(len, texts)) > 2_000
