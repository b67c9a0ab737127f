from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from service.adapters.bus_records import dead_letter_fields, read_dead_letter
from service.ports.bus import DeadLetter
from service.ports.stream import Delivery


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
