"""Tests for `service.conversation.message_log`."""

from service.conversation.message_log import ALL, DEFAULT, Histories
from tests.unit.service.conversation.talk import said

A, B = said("user", "a"), said("user", "b")


def test_there_is_a_conversation_from_the_start() -> None:
    """It is the current one, and active once something is said."""
    histories = Histories()

    assert DEFAULT in histories
    assert (histories.current, histories.active, histories.rows()) == (DEFAULT, [], ())
    histories.add(A)
    assert (histories.active, histories.rows()) == ([DEFAULT], (A,))


def test_conversations_are_apart() -> None:
    """Each has its own messages, in their order, and they are active in theirs."""
    histories = Histories()
    histories.add(A, "x")
    histories.add(B, "y")
    histories.add(B, "x")
    histories.add(B, "x", first=True)

    assert histories.rows("x") == (B, A, B)
    assert histories.rows("y") == (B,)
    assert histories.rows("z") == histories.rows() == ()
    assert histories.active == ["x", "y"]


def test_only_what_is_there_can_be_current() -> None:
    """An unknown one changes nothing."""
    histories = Histories()
    histories.add(A, "x")

    assert histories.select("x")
    assert not histories.select("y")
    assert histories.current == "x"
    assert histories.rows() == (A,)


def test_a_cleared_conversation_is_there_and_empty() -> None:
    """It is neither active nor current; others are left alone."""
    histories = Histories()
    histories.add(A, "x")
    histories.add(B, "y")
    histories.select("x")
    histories.clear()

    assert (histories.rows("x"), histories.rows("y")) == ((), (B,))
    assert (histories.active, histories.current) == (["y"], DEFAULT)
    assert histories.select("x")
    histories.clear("y")
    assert histories.current == "x"


def test_clearing_an_unknown_conversation_is_nothing() -> None:
    """It doesn't come to be by that."""
    histories = Histories()
    histories.clear("x")

    assert "x" not in histories


def test_all_conversations_can_be_forgotten() -> None:
    """None of them can be the current one then, but for the one there always is."""
    histories = Histories()
    histories.add(A, "x")
    histories.select("x")
    histories.clear(ALL)

    assert (histories.active, histories.current) == ([], DEFAULT)
    assert not histories.select("x")


def test_messages_can_be_replaced() -> None:
    """All of a conversation's, by others."""
    histories = Histories()
    histories.add(A, "x")
    histories.replace([B, B], "x")

    assert histories.rows("x") == (B, B)
