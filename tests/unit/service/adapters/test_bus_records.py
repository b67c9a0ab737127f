from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.adapters.bus_records import dead_letter_fields, owner_of, read_dead_letter, written_ids
from service.ports.bus import DeadLetter, Delivery


def test_fields_report_what_and_why() -> None:
    """A dead letter has the payload as it came, and says why, whence and when."""
    moment = datetime(2025, 12, 10, 8, tzinfo=UTC)
    delivery = Delivery(
        source="context.build.request", token="1-2", payload=b"\xff", received_at=moment, attempt=3
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
    """All fields come back."""
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


@pytest.mark.parametrize(
    ("payload", "owner"),
    [
        (b'{"owner_key": "ana"}', "ana"),
        ('{"owner_key": "Zoë", "content": {"owner_key": "x"}}'.encode(), "Zoë"),
        (b'{"owner_key": "a", "owner_key": "b"}', "b"),
        (rb'{"owner_key": "\ud83d"}', "\N{REPLACEMENT CHARACTER}"),
        (b'{"owner_key": 7}', None),
        (b"{}", None),
        (b"[]", None),
        (b"", None),
        (b"\xff", None),
        (b"[" * 100_000, None),
    ],
)
def test_owners_are_read_as_the_worker_reads_them(payload: bytes, owner: str | None) -> None:
    """What a stranger sent names an owner or none, and never raises."""
    assert owner_of(payload) == owner


@pytest.mark.parametrize(
    ("recall", "ids"),
    [
        (b"", ["2-0"]),
        (b"1-5", ["2-0", "1-5"]),
        (b"soon", ["2-0"]),
        ("١-٥".encode(), ["2-0"]),
        (b"1-" + b"9" * 99, ["2-0"]),
        (b"1-5\n", ["2-0"]),
    ],
)
def test_an_entry_may_name_the_one_it_was(recall: bytes, ids: list[str]) -> None:
    """Any writer may have set the field, so what is no id isn't read."""
    assert written_ids("2-0", recall) == ids
