"""The fingerprint of unchanged rows."""

from service.ports.stores import rows_fingerprint
from tests.support import row


def test_a_fingerprint_depends_on_contents_and_order() -> None:
    """Rows that say the same have one; others, or the same in another order, have another."""
    first, second = row(1, "HUMAN", "a"), row(2, "AI", "b")
    assert rows_fingerprint([first, second]) == rows_fingerprint(
        [dict(reversed(list(first.items()))), second]
    )
    assert rows_fingerprint([first, second]) != rows_fingerprint([second, first])
    assert rows_fingerprint([first]) != rows_fingerprint([{**first, "content": "c"}])
