from datetime import UTC, datetime

from service.adapters.dead_letters import dead_letter_fields
from service.inbox import Delivery


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
