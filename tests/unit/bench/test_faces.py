from collections.abc import Sequence
from itertools import pairwise

import pytest

from bench import faces
from bench.contenders import CONTENDERS
from bench.faces import PEER_KEY, SYSTEM, TOKENS, measured, messages
from formatters.model import Row
from service.conversation.manager import ContextManager

OURS = ("manager_500_ms", "manager_20_ms", "manager_500_cold_ms", "prune_20_ms", "prune_40_ms")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Sequence[Row], int]]:
    """Put a peer in place that notes what it is given; other histories are short."""
    noted: list[tuple[Sequence[Row], int]] = []

    def note(messages: Sequence[Row], max_tokens: int) -> object:
        noted.append((messages, max_tokens))
        return lambda: len(messages)

    monkeypatch.setattr(faces, "langchain_chat", note)
    monkeypatch.setattr(type(CONTENDERS["langchain_memo"]), "installed", True)
    monkeypatch.setattr(faces, "versions", dict)
    monkeypatch.setattr(faces, "BUILT", (faces.PEER, 20))
    monkeypatch.setattr(faces, "PRUNED", (20, 40))
    return noted


@pytest.mark.usefixtures("given")
def test_each_figure_has_a_ratio_to_the_peer() -> None:
    """Times are milliseconds by key, and the peer's ratio to itself is 1."""
    figures = measured(2)

    assert set(figures) == {*OURS, PEER_KEY, "times_langchain_memo_500", "peers", "rounds"}
    assert set(figures["times_langchain_memo_500"]) == {*OURS, PEER_KEY}
    assert figures["times_langchain_memo_500"][PEER_KEY] == 1
    assert all(figures[key] >= 0 for key in (*OURS, PEER_KEY))
    assert figures["rounds"] == 2


def test_the_peer_gets_the_same_messages(
    given: list[tuple[Sequence[Row], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of tools and their results are among them, and so is the system message."""
    added: list[Row] = []
    add = ContextManager.add_message_dict

    def note(manager: ContextManager, message: Row) -> None:
        added.append(message)
        add(manager, message)

    monkeypatch.setattr(ContextManager, "add_message_dict", note)
    measured(1)

    ((system, *rest), tokens) = given[0]
    assert tokens == TOKENS
    assert system == {"role": "system", "content": SYSTEM}
    assert rest == added[: faces.PEER]
    assert [message["role"] for message in rest].count("tool") == faces.PEER // 10


def test_without_the_peer_its_figures_are_null(
    given: list[tuple[Sequence[Row], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours are measured all the same."""
    monkeypatch.setattr(type(CONTENDERS["langchain_memo"]), "installed", False)
    figures = measured(1)

    assert not given
    assert figures[PEER_KEY] is None
    assert set(figures["times_langchain_memo_500"].values()) == {None}
    assert figures["manager_500_ms"] >= 0


def test_messages_are_valid_chats() -> None:
    """Each result of a tool follows the call with its id."""
    chat = messages(100)

    for before, message in pairwise(chat):
        if message["role"] == "tool":
            assert str(message["tool_call_id"]) in str(before["tool_calls"])
