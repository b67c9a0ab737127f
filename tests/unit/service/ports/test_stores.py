"""The fingerprint of unchanged rows."""

from service.ports.stores import fingerprint
from tests.support import row


def test_a_fingerprint_depends_on_contents_and_order() -> None:
    """Rows that say the same have one; others, or the same in another order, have another."""
    first, second = row(1, "HUMAN", "a"), row(2, "AI", "b")
    assert fingerprint([first, second]) == fingerprint(
        [dict(reversed(list(first.items()))), second]
    )
    assert fingerprint([first, second]) != fingerprint([second, first])
    assert fingerprint([first]) != fingerprint([{**first, "content": "c"}])
