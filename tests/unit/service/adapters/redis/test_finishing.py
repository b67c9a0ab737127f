"""Which answers go together, and what an error of some costs the others."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from redis.exceptions import NoPermissionError, OutOfMemoryError, ReadOnlyError, RedisError

from service.adapters.bus_options import BusOptions
from service.adapters.redis.driver import Call, Command
from service.adapters.redis.finishing import BATCH_BYTES, Finisher
from service.adapters.redis.servers import ServerClock, Servers
from service.adapters.redis.shards import Shards
from service.errors import ForbiddenError, OverloadedError
from service.ports.bus import Answer, AnswerOutcome, Delivery, Identity, ReplyKind

Reported = Callable[[Call, int], Any]


class OneFake:
    """A server that records its calls, and returns what a test sets."""

    def __init__(self, reported: Reported = lambda _, count: [[b"sent", 1]] * count) -> None:
        self.clock = ServerClock()
        self.calls: list[Call] = []
        self._reported = reported

    async def execute(self, calls: Sequence[Command]) -> list[Any]:
        """Answer each call; there are no keys yet."""
        self.calls += [call for call in calls if isinstance(call, Call)]
        return [
            self._reported(call, int(call.arguments[7])) if isinstance(call, Call) else 0
            for call in calls
        ]


def _finisher(server: OneFake) -> Finisher:
    servers = cast("Servers", server)
    return Finisher(servers, Shards(servers, "", 60.0), BusOptions())


def _answer(
    number: int,
    *,
    size: int = 10,
    kind: ReplyKind = "channel",
    source: str = "s",
    dead: bool = False,
) -> Answer:
    return Answer(
        delivery=Delivery(
            source=source,
            token=f"{number}-0",
            payload=b"{}",
            received_at=datetime(2026, 1, 1, tzinfo=UTC),
            attempt=1,
        ),
        identity=Identity("o", str(number)),
        fingerprint="f",
        response=b"x" * size,
        reply_to="r",
        reply_kind=kind,
        dead_letter="why" if dead else None,
    )


def _tokens(call: Call) -> list[object]:
    return list(call.arguments[10 : 8 + 5 * int(call.arguments[7]) : 5])


async def test_answers_of_one_stream_go_together() -> None:
    """What goes to lists and streams, and what is dead, goes alone."""
    server = OneFake()
    answers = [
        *(_answer(0), _answer(1, kind="list"), _answer(2), _answer(3, source="other")),
        *(_answer(4, dead=True), _answer(5), _answer(6, kind="stream")),
    ]

    receipts = await _finisher(server).finish(answers)

    assert [each.outcome for each in receipts] == [AnswerOutcome.SENT] * 7
    parts = [_tokens(call) for call in server.calls]
    assert parts == [["0-0", "2-0", "5-0"], ["1-0"], ["3-0"], ["4-0"], ["6-0"]]
    # the stream and each result; the reply that is no channel, and the dead-letter stream
    assert [len(call.keys) for call in server.calls] == [1 + 3, 2 + 1, 1 + 1, 2 + 1, 2 + 1]


async def test_no_call_holds_the_server_up_for_long() -> None:
    """Responses of one call have n bytes at most, unless one alone has more."""
    server = OneFake()
    third = BATCH_BYTES // 3

    await _finisher(server).finish(
        [_answer(0, size=2 * BATCH_BYTES), *(_answer(n, size=third) for n in range(1, 6))]
    )

    parts = [_tokens(call) for call in server.calls]
    assert parts == [["0-0"], ["1-0", "2-0", "3-0"], ["4-0", "5-0"]]


async def test_an_error_of_one_is_its_own() -> None:
    """It is in its receipt, as a `BusError`; the others are out."""
    full = OutOfMemoryError("OOM command not allowed")
    server = OneFake(lambda _, count: [[b"sent", 1]] * (count - 1) + [full])

    sent, failed = await _finisher(server).finish([_answer(0), _answer(1)])

    assert (sent.outcome, sent.error) == (AnswerOutcome.SENT, None)
    assert failed.outcome == AnswerOutcome.FAILED
    assert isinstance(failed.error, OverloadedError)


async def test_a_call_that_is_refused_is_made_for_each() -> None:
    """What one answer brought into it costs no other."""
    no = NoPermissionError("no")
    server = OneFake(lambda call, count: no if "1-0" in call.arguments else [[b"sent", 1]] * count)

    receipts = await _finisher(server).finish([_answer(0), _answer(1), _answer(2)])

    assert [each.outcome for each in receipts] == [
        AnswerOutcome.SENT,
        AnswerOutcome.FAILED,
        AnswerOutcome.SENT,
    ]
    assert isinstance(receipts[1].error, ForbiddenError)
    assert [_tokens(call) for call in server.calls][1:] == [["0-0"], ["1-0"], ["2-0"]]


async def test_a_server_that_takes_from_nobody_is_queried_once() -> None:
    """It would say the same to each answer."""
    server = OneFake(lambda *_: ReadOnlyError("READONLY"))

    receipts = await _finisher(server).finish([_answer(0), _answer(1)])

    assert all(isinstance(each.error, OverloadedError) for each in receipts)
    assert len(server.calls) == 1


async def test_a_server_that_is_away_leaves_the_answers_of_its_streams() -> None:
    """All answers of that call are no longer ours; those of others are out."""
    away = RedisError("no answer")
    server = OneFake(lambda call, count: away if call.keys[0] == "s" else [[b"sent", 2]] * count)

    receipts = await _finisher(server).finish([_answer(0), _answer(1), _answer(2, source="other")])

    assert [(each.outcome, each.receivers) for each in receipts] == [
        (AnswerOutcome.NOT_MINE, None),
        (AnswerOutcome.NOT_MINE, None),
        (AnswerOutcome.SENT, 2),
    ]


async def test_a_forbidden_list_costs_no_other_answer() -> None:
    """The server refuses a call for one of its keys as a whole: that of the list."""
    server = OneFake(
        lambda call, count: NoPermissionError("no") if "r" in call.keys else [[b"sent", 1]] * count
    )
    finisher = _finisher(server)

    receipts = await finisher.finish([_answer(0), _answer(1, kind="list"), _answer(2)])

    assert [each.outcome for each in receipts] == [
        AnswerOutcome.SENT,
        AnswerOutcome.FORBIDDEN,
        AnswerOutcome.SENT,
    ]
    assert finisher.forbidden == 1


@pytest.mark.parametrize(
    "said",
    [
        "this user has no permissions to run the 'evalsha' command or its subcommand",
        "User default has no permissions to run the 'evalsha' command",
    ],
)
async def test_no_right_to_scripts_is_no_fault_of_a_reply(said: str) -> None:
    """Then the answer waits for its next attempt, and no error blames the request."""
    finisher = _finisher(OneFake(lambda *_: NoPermissionError(said)))

    (receipt,) = await finisher.finish([_answer(0, kind="list")])

    assert receipt.outcome == AnswerOutcome.FAILED
    assert isinstance(receipt.error, ForbiddenError)
    assert finisher.forbidden == 0
