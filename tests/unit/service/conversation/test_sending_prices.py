"""Tests for `service.conversation.sending`."""

import pytest

from service.conversation import sending
from service.conversation.sending import RowCosts
from tests.unit.service.conversation.talk import said


def test_a_message_is_counted_once() -> None:
    """As it is sent; an equal one that is another object is counted by itself."""
    texts: list[str] = []

    def count(text: str) -> int:
        texts.append(text)
        return len(text)

    price, row = RowCosts(count), said("user", "[THIS_MOMENT]")

    assert price(row) == price(row) == 4 + len("\\[THIS_MOMENT]")
    assert texts == ["\\[THIS_MOMENT]"]
    price(dict(row))
    assert len(texts) == 2


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that runs for months has no use for those of last year."""
    monkeypatch.setattr(sending, "MAX_REMEMBERED", 2)
    price = RowCosts(len)
    for number in range(5):
        price(said("user", str(number)))

    assert len(price._known) == 1
