import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.wire import response as responses
from service.wire.response import PLAIN_BYTES, StoredResult, pack_result, unpack_result


@given(st.text(), st.dictionaries(st.text(), st.integers() | st.text() | st.none()))
def test_responses_come_back(fingerprint: str, response: dict[str, object]) -> None:
    """What is kept comes back as it was sent."""
    sent = json.dumps(response, indent=1).encode()

    packed = pack_result(fingerprint, sent, 1_000_000)

    assert unpack_result(packed) == StoredResult(fingerprint=fingerprint, response=response)


@pytest.mark.parametrize("length", [0, PLAIN_BYTES - 50, PLAIN_BYTES, 100_000])
def test_every_reader_of_zlib_reads_them(length: int) -> None:
    """Short ones, which are not compressed, are in zlib's form as well."""
    sent = json.dumps({"text": "ab" * (length // 2)}).encode()

    packed = pack_result("f", sent, 1_000_000)

    assert json.loads(zlib.decompress(packed)) == {"fingerprint": "f", "response": json.loads(sent)}
    assert len(packed) <= PLAIN_BYTES + 100


def test_a_short_response_is_compressed_where_it_would_be_too_large() -> None:
    """The limit is for stored bytes: the response is compressed before it is left out."""
    sent = json.dumps({"text": "ab" * 400}).encode()

    packed = pack_result("f", sent, 200)

    assert len(packed) <= 200
    assert unpack_result(packed) == StoredResult(fingerprint="f", response=json.loads(sent))


def test_large_response_leaves_its_fingerprint() -> None:
    """Of a response that is too large, the fingerprint is kept."""
    packed = pack_result("f", json.dumps({"text": "ab" * 40}).encode(), 40)

    assert unpack_result(packed) == StoredResult(fingerprint="f", response=None)


def test_results_of_other_writers_are_read() -> None:
    """A result in another spelling of the same JSON is a result too."""
    foreign = zlib.compress(b'{ "response": {"na\\u00efve": 1}, "fingerprint": "f" }')

    assert unpack_result(foreign) == StoredResult(fingerprint="f", response={"naïve": 1})


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"fingerprint":"f"}',
        b'{"fingerprint":1,"response":{}}',
        b'{"fingerprint":"f","response":[]}',
        b'{"fingerprint":"f","response":{}',
        b"\xff",
        b'{"fingerprint":"f","response":' + b"[" * 100_000,
    ],
)
def test_what_is_no_result_counts_as_none(text: bytes) -> None:
    """Other JSON, and what is none, is as good as nothing."""
    assert unpack_result(zlib.compress(text)) is None


def test_corrupt_and_absent_results() -> None:
    """Cut and foreign bytes are as good as nothing, and so is nothing."""
    packed = pack_result("f", b"{}", 1000)

    assert unpack_result(None) is None
    assert unpack_result(b"") is None
    assert unpack_result(b"{}") is None
    assert unpack_result(packed[:-3]) is None


def test_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small value that unpacks to a huge one was not written here, and is not read."""
    monkeypatch.setattr(responses, "UNPACKED_MAX_BYTES", 10_000)
    result = b'{"fingerprint": "f", "response": {}}'

    whole = StoredResult(fingerprint="f", response={})
    assert unpack_result(zlib.compress(result.ljust(10_000))) == whole
    assert unpack_result(zlib.compress(result.ljust(10_001))) is None
