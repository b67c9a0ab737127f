"""Dead letters on the command line, without a bus."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import Result

from service.cli.dead import (
    Settled,
    letter_fields,
    list_fields,
    print_letter,
    print_rows,
    print_settled,
)
from service.cli.exits import Exit
from service.observe.logs import owner_hash
from service.ports.bus import DeadLetter
from service.wire.payload import derive_id
from service.wire.protocol import Topics

Ctxb = Callable[..., Result]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["retry"], "give ids, or --all"),
        (["retry", "--reason", "x"], "give ids, or --all"),
        (["retry", "1-1", "--all"], "give ids, or --all"),
        (["drop", "1-1", "--reason", "x"], "--reason goes with --all"),
        (["drop", "--yes"], "give ids, or --all"),
        (["show", "last"], "'last' is not an id"),
        (["retry", "1"], "'1' is not an id"),
        (["drop", "1-1", "18446744073709551616-0"], "is not an id"),
        (["ls", "--limit", "0"], "--limit"),
    ],
)
def test_half_a_choice_is_refused(arguments: list[str], said: str, ctxb: Ctxb) -> None:
    """Nothing is asked of a bus where it isn't clear what is meant."""
    result = ctxb("dead", *arguments)

    assert result.exit_code == Exit.USAGE
    assert said in result.stderr


@pytest.mark.parametrize(
    "arguments", [["ls"], ["show", "1-1"], ["retry", "--all"], ["drop", "--all"]]
)
def test_a_bus_of_ones_own_has_no_dead(arguments: list[str], ctxb: Ctxb) -> None:
    """Without a bus in the settings, there is nothing to look at."""
    result = ctxb("dead", *arguments)

    assert result.exit_code == Exit.CONFIGURATION
    assert "CTXB_BUS__URL" in result.stderr


@pytest.mark.parametrize(
    ("settled", "said"),
    [
        (Settled(done=1), "1 entry put back\n"),
        (Settled(done=2, failed=1), "2 entries put back; 1 not: gone, or odd\n"),
    ],
)
def test_only_entries_that_failed_have_a_reason(
    settled: Settled, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody takes it for the state of the others."""
    print_settled(settled, "put back", "gone, or odd")
    assert capsys.readouterr().out == said


LETTER = DeadLetter(
    id="1765353600000-0",
    payload=b'{"id": "msg_1", "owner_key": "ana", "content": {"current_input": "Hello"}}',
    reason="delivered 3 times without an answer",
    source=Topics.CONTEXT_BUILD_REQUEST,
    entry="1765353500000-0",
    attempts=4,
    at=datetime(2025, 12, 10, 8, tzinfo=UTC),
)


def test_a_listed_entry_names_its_request_and_hides_its_owner() -> None:
    """The hash is the one of the logs; the key is shown on demand, what was said never."""
    hidden = list_fields(LETTER, owners=False)

    assert hidden == {
        "id": "1765353600000-0",
        "at": LETTER.at,
        "source": "context.build.request",
        "request_id": "msg_1",
        "owner": owner_hash("ana"),
        "reason": "delivered 3 times without an answer",
        "attempts": 4,
        "bytes": len(LETTER.payload),
    }
    assert list_fields(LETTER, owners=True)["owner_key"] == "ana"


def test_a_request_without_an_id_has_the_name_that_logs_use() -> None:
    """It is made of the payload; a result has none."""
    nameless = replace(LETTER, payload=b"{}")

    assert list_fields(nameless, owners=False)["request_id"] == derive_id(b"{}")
    row = replace(nameless, source=Topics.LLM_RESULTS)
    assert list_fields(row, owners=False)["request_id"] is None


@given(st.one_of(st.binary(), st.builds(lambda t: b'{"id": "%b"}' % t, st.binary())))
def test_any_payload_can_be_listed(payload: bytes) -> None:
    """What can't be read has no names; what can, has names that a terminal takes."""
    fields = list_fields(replace(LETTER, payload=payload), owners=True)

    (fields["request_id"] or "").encode()
    assert fields["bytes"] == len(payload)


def test_half_a_letter_is_a_whole_character() -> None:
    """Half of a surrogate pair in a name can be printed all the same."""
    letter = replace(LETTER, payload=b'{"id": "\\ud83d"}')
    assert list_fields(letter, owners=False)["request_id"] == "\ufffd"


def test_the_table_has_all_but_the_payload(capsys: pytest.CaptureFixture[str]) -> None:
    """In the order given, and with nothing that could steer a terminal."""
    odd = DeadLetter(
        id="1-1", payload=b"?", reason="\x1b[2J", source="", entry="", attempts=0, at=None
    )
    print_rows([list_fields(letter, owners=False) for letter in (LETTER, odd)])

    shown = capsys.readouterr().out
    for part in (LETTER.id, "2025-12-10 08:00", "msg_1", owner_hash("ana"), "Unknown time"):
        assert part in shown
    assert shown.index(LETTER.id) < shown.index("1-1")
    assert "ana" not in shown
    assert "Hello" not in shown
    assert "\x1b" not in shown


def test_the_table_shows_owners_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    """As their keys."""
    print_rows([list_fields(LETTER, owners=True)])

    assert "ana" in capsys.readouterr().out


def test_a_shown_entry_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    """The payload is cut, and it is said how much is missing; nothing steers a terminal."""
    letter = replace(LETTER, payload=b"ab\xff\x1bcd", at=None)
    print_letter(letter, 4)

    shown = capsys.readouterr().out
    assert "attempts: 4\n" in shown
    assert "at: -\n" in shown
    assert shown.endswith("\nab\ufffd\ufffd\n… 2 more bytes\n")
    print_letter(letter, 6)
    assert "more bytes" not in capsys.readouterr().out
    assert letter_fields(letter, 4)["payload"] == "ab\ufffd\x1b"
