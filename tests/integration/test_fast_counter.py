"""The extra ``fast``, where it is installed, counts as tiktoken does."""

from collections.abc import Callable
from importlib.util import find_spec

import pytest

from service.adapters.tokens.fast import is_assigned, load_fast_count
from service.adapters.tokens.tokenizers import TiktokenCounter
from tests.support import lacking

Count = Callable[[str], int]


@pytest.fixture(params=["o200k_base", "cl100k_base"], scope="module")
def real(request: pytest.FixtureRequest) -> tuple[Count, Count]:
    """Give toktok's count of an encoding, and tiktoken's."""
    if find_spec("toktok") is None:
        lacking("the extra 'fast' is not installed")
    fast = load_fast_count(request.param)
    assert fast is not None
    slow = TiktokenCounter(request.param)
    slow._fast = None
    return fast, slow.count


@pytest.mark.parametrize(
    "text",
    [
        " " * 1_200_000 + "x",
        "\t" * 100_000,
        "\r\n" * 50_000,
        "\ud800 alone, \udfff too" * 50,
        "<|endoftext|>" * 100,
        "\N{OGHAM SPACE MARK}\u2028\x85" * 1_000,
    ],
    ids=["blanks", "tabs", "line ends", "surrogates", "specials", "odd blanks"],
)
def test_the_real_one_counts_hostile_texts_alike(real: tuple[Count, Count], text: str) -> None:
    """Also those that tiktoken's own pattern fails on."""
    fast, slow = real

    assert fast(text) == slow(text)


@pytest.mark.slow
def test_the_real_one_knows_every_character_that_there_is(real: tuple[Count, Count]) -> None:
    """Among letters, digits and signs, each is of the kind that tiktoken takes it to be."""
    fast, slow = real
    characters = [chr(code) for code in range(0x80, 0xE0000) if is_assigned(chr(code))]
    odd = [
        block[0]
        for block in (characters[start : start + 512] for start in range(0, len(characters), 512))
        if fast(text := "".join(f"x{each}1{each}\\u{each}" for each in block)) != slow(text)
    ]

    assert len(characters) > 100_000
    assert odd == []
