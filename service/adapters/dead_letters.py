"""What stands in the dead letter beside the payload."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime

from service.bus import DeadLetter
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


def read_dead_letter(letter_id: str, fields: Mapping[str, bytes]) -> DeadLetter:
    """Read an entry, also one that something else wrote."""
    said = {name: value.decode(errors="replace") for name, value in fields.items()}
    at, attempts = None, 0
    with suppress(ValueError):
        at = datetime.fromisoformat(said.get("at", ""))
    with suppress(ValueError):
        attempts = int(said.get("attempts", ""))
    return DeadLetter(
        id=letter_id,
        payload=fields.get("data", b""),
        reason=said.get("reason", ""),
        source=said.get("source", ""),
        entry=said.get("entry", ""),
        attempts=attempts,
        at=at,
    )
