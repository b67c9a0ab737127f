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


def test_all_blanks_are_known() -> None:
    """Every character that the pattern takes for a blank can be encoded as one."""
    blanks = [chr(code) for code in range(0x110000) if encodings._BLANKS.match(chr(code) * 64)]

    assert set("".join(blanks).encode()) == encodings._BLANK_BYTES
