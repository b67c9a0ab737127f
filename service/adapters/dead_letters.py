"""What stands in the dead letter beside the payload."""

from datetime import datetime

from service.inbox import Delivery


def dead_letter_fields(delivery: Delivery, reason: str, at: datetime) -> dict[str, bytes]:
    """Return the fields of an entry: the payload, why it is there, and where it came from."""
    return {
        "data": delivery.payload,
        "reason": reason.encode(),
        "source": delivery.source.encode(),
        "entry": delivery.token.encode(),
        "attempts": b"%d" % delivery.attempt,
        "at": at.isoformat().encode(),
    }
