import json
import zlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.adapters import bus_records as stored_results
from service.adapters.bus_records import (
    PLAIN_BYTES,
    dead_letter_fields,
    pack,
    read_dead_letter,
    unpack,
)
from service.ports.bus import DeadLetter, StoredResult
from service.ports.stream import Delivery


@given(st.text(), st.dictionaries(st.text(), st.integers() | st.text() | st.none()))
def test_responses_come_back_byte_for_byte(fingerprint: str, response: dict[str, object]) -> None:
    """What is kept comes back as it was sent."""
    sent = json.dumps(response, indent=1).encode()

    packed = pack(fingerprint, sent, 1_000_000)

    assert unpack(packed) == StoredResult(fingerprint=fingerprint, response=sent)


@pytest.mark.parametrize("length", [0, PLAIN_BYTES - 50, PLAIN_BYTES, 100_000])
def test_every_reader_of_zlib_reads_them(length: int) -> None:
    """Short ones, which are not compressed, are in zlib's form as well."""
    sent = json.dumps({"text": "ab" * (length // 2)}).encode()

    packed = pack("f", sent, 1_000_000)

    assert json.loads(zlib.decompress(packed)) == {
        "fingerprint": "f",
        "response": json.loads(sent),
    }
    assert len(packed) <= PLAIN_BYTES + 100


def test_a_short_response_is_compressed_where_it_would_be_too_large() -> None:
    """The bound holds for what is kept: compression comes before leaving the response out."""
    sent = json.dumps({"text": "ab" * 400}).encode()

    packed = pack("f", sent, 200)

    assert len(packed) <= 200
    assert unpack(packed) == StoredResult(fingerprint="f", response=sent)


def test_large_response_leaves_its_fingerprint() -> None:
    """Of a response that is too large, the fingerprint is kept."""
    packed = pack("f", json.dumps({"text": "ab" * 40}).encode(), 40)

    assert unpack(packed) == StoredResult(fingerprint="f", response=None)


def test_results_of_other_writers_are_read() -> None:
    """A result in another spelling of the same JSON is a result too."""
    foreign = zlib.compress(b'{ "response": {"na\\u00efve": 1}, "fingerprint": "f" }')

    assert unpack(foreign) == StoredResult(fingerprint="f", response='{"naïve": 1}'.encode())


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
    assert unpack(zlib.compress(text)) is None


def test_corrupt_and_absent_results() -> None:
    """Cut and foreign bytes are as good as nothing, and so is nothing."""
    packed = pack("f", b"{}", 1000)

    assert unpack(None) is None
    assert unpack(b"") is None
    assert unpack(b"{}") is None
    assert unpack(packed[:-3]) is None


def test_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small value that unpacks to a huge one was not written here, and is not read."""
    monkeypatch.setattr(stored_results, "UNPACKED_MAX_BYTES", 10_000)
    result = b'{"fingerprint": "f", "response": {}}'

    whole = StoredResult(fingerprint="f", response=b"{}")
    assert unpack(zlib.compress(result.ljust(10_000))) == whole
    assert unpack(zlib.compress(result.ljust(10_001))) is None


def test_fields_tell_what_and_why() -> None:
    """A dead letter has the payload as it came, and says why, whence and when."""
    moment = datetime(2025, 12, 10, 8, tzinfo=UTC)
    delivery = Delivery(
        source="context.build.request",
        token="1-2",
        payload=b"\xff",
        received_at=moment,
        attempt=3,
    )

    assert dead_letter_fields(delivery, "ungültig", moment) == {
        "data": b"\xff",
        "reason": "ungültig".encode(),
        "source": b"context.build.request",
        "entry": b"1-2",
        "attempts": b"3",
        "at": b"2025-12-10T08:00:00+00:00",
    }


def test_what_is_written_is_read() -> None:
    """All that the fields tell comes back."""
    moment = datetime(2025, 12, 10, 8, tzinfo=UTC)
    delivery = Delivery(
        source="llm.results", token="1-2", payload=b"\xff", received_at=moment, attempt=3
    )

    assert read_dead_letter("5-0", dead_letter_fields(delivery, "ungültig", moment)) == DeadLetter(
        id="5-0",
        payload=b"\xff",
        reason="ungültig",
        source="llm.results",
        entry="1-2",
        attempts=3,
        at=moment,
    )


NAMES = st.sampled_from(["data", "reason", "source", "entry", "attempts", "at", "other"])


@given(st.dictionaries(NAMES, st.binary(max_size=20)))
def test_foreign_fields_are_read_as_far_as_they_go(fields: dict[str, bytes]) -> None:
    """Whatever the fields hold, an entry comes of it, with the payload as it is."""
    letter = read_dead_letter("1-1", fields)

    assert letter.payload == fields.get("data", b"")
    letter.reason.encode()
