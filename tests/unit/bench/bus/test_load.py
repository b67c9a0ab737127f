"""The requests that the benchmark sends, and what tells their answers apart."""

import json

from bench.bus.echo import Echo
from bench.bus.load import OWNERS, _answered, request
from bench.bus.worker import CONSTANT
from service.app import now
from service.wire import decode, succeeded


def test_requests_can_be_built() -> None:
    """They are requests by the contract, no two of them alike, each with a reply of its own."""
    requests = [decode(request(number, "context.reply.bench.1")) for number in range(3)]
    assert len({each.id for each in requests}) == 3
    assert all(each.unknown_keys == [] for each in requests)
    assert requests[0].metadata.reply_to == "context.reply.bench.1"


def test_the_requests_of_an_owner_bring_one_input() -> None:
    """Histories don't grow, however often their owner asks."""
    first, again = decode(request(1)), decode(request(1 + OWNERS))
    assert first.owner_key == again.owner_key
    assert (first.input_id, first.run_id) == (again.input_id, again.run_id)
    assert first.id != again.id


def test_an_answer_names_its_request() -> None:
    """The worker's answer and the echo's are told apart by the same search."""
    asked = decode(request(7))
    response = succeeded(asked.envelope, CONSTANT, now()).model_dump_json().encode()
    assert _answered(response) == b"bench_7"
    _, channel, echoed = Echo(700)._command(json.loads(request(7, "context.reply.x")))
    assert channel == "context.reply.x"
    assert isinstance(echoed, bytes)
    assert _answered(echoed) == b"bench_7"
    assert 690 <= len(echoed) <= 710
