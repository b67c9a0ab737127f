"""The requests that the benchmark sends, and how their answers are distinguished."""

import json

from bench.bus.echo import Echo
from bench.bus.load import OWNERS, Waiting, request
from bench.bus.worker import CONSTANT
from service.connect import now
from service.wire.request import decode
from service.wire.response import BuildResponse, make_response


def test_requests_can_be_built() -> None:
    """They are requests by the contract, no two of them alike, each with a reply of its own."""
    requests = [decode(request(number, "context.reply.bench.1")) for number in range(3)]
    assert len({each.id for each in requests}) == 3
    assert all([*each.ignored_keys] == [] for each in requests)
    assert requests[0].metadata.reply_to == "context.reply.bench.1"


def test_the_requests_of_an_owner_bring_one_input() -> None:
    """Histories don't grow, however often their owner asks."""
    first, again = decode(request(1)), decode(request(1 + OWNERS))
    assert first.owner_key == again.owner_key
    assert (first.input_id, first.run_id) == (again.input_id, again.run_id)
    assert first.id != again.id


async def test_an_answer_finds_its_caller() -> None:
    """The worker's answer and the echo's are given to who waits for them, and copies to nobody."""
    asked = decode(request(7))
    response = (
        make_response(BuildResponse, asked.envelope, CONSTANT, now()).model_dump_json().encode()
    )
    _, channel, echoed = Echo(700)._command(json.loads(request(8, "context.reply.x")))
    assert channel == "context.reply.x"
    assert isinstance(echoed, bytes)
    assert 690 <= len(echoed) <= 710

    waiting = Waiting()
    of_worker, of_echo = waiting.answer_to("bench_7"), waiting.answer_to("bench_8")
    for message in (echoed, response, response):
        waiting.received(message)
    assert (await of_worker)["content"]["build_id"] == CONSTANT.build_id
    assert (await of_echo)["metadata"] == {"request_id": "bench_8"}
