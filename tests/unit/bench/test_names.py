"""The benches' own names are those of the service."""

from bench import names
from service.adapters.bus_options import BusOptions
from service.adapters.redis.shards import Shard
from service.ports.bus import Identity
from service.wire.protocol import Topics


def test_answers_are_where_the_service_stores_them() -> None:
    """Also those of owners whose keys have more bytes than characters."""
    for owner_key in ("ana", "Zoë"):
        expected = Shard().result(Identity(owner_key, "msg_7"))
        assert names.result_key(owner_key, "msg_7") == expected


def test_streams_and_groups_are_those_of_the_service() -> None:
    """What is written down again is the same."""
    written = [names.STREAM, names.RESPONSES, names.DEAD]
    requests = [Topics.CONTEXT_BUILD_REQUEST, Topics.CONTEXT_BUILD_RESPONSE]
    assert written == [*map(str, requests), str(Topics.CONTEXT_BUILD_DEAD)]
    assert set(names.ROW_STREAMS) == {Topics.LLM_RESULTS, Topics.TOOLS_RESULTS}
    options = BusOptions()
    assert (options.group, options.results_group) == (names.GROUP, names.ROW_GROUP)
