"""Encodings are defined as tiktoken defines them."""

import pytest
from tiktoken_ext import openai_public

from service.adapters.tokens import encodings
from service.adapters.tokens.encodings import PACKAGED


@pytest.mark.parametrize("name", PACKAGED)
def test_definitions_are_tiktokens_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pattern and hash are those of the installed version."""
    hashes: list[str] = []

    def load(_url: str, expected_hash: str) -> dict[bytes, int]:
        hashes.append(expected_hash)
        return {}

    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", load)
    definition = openai_public.ENCODING_CONSTRUCTORS[name]()

    assert encodings._DEFINITIONS[name] == (definition["pat_str"], hashes[0])
