"""The page on scaling: its examples, and its users, who may do enough and no more."""

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import redis.asyncio as redis
import yaml
from redis.exceptions import NoPermissionError
from structlog.testing import capture_logs

from service.adapters.bus_options import BusOptions
from service.adapters.redis.bus import open_redis_bus
from service.adapters.redis.driver import bus_errors
from service.adapters.redis.shards import Shard, shard_of, shard_topic
from service.adapters.redis.survey import open_redis_survey
from service.config.settings import BusSettings
from service.errors import ForbiddenError
from service.ports.bus import AnswerOutcome, Bus, Identity
from service.wire.protocol import ROW_TOPICS, Topics
from service.wire.response import pack_result
from service.worker.client import open_client
from tests.integration.bus_places import (
    SHORT,
    RedisPlace,
    answer,
    payloads,
    received,
    taken_over,
    until,
)
from tests.integration.test_documents import fences, section, text_of
from tests.integration.test_worker import asking, open_crew

pytestmark = pytest.mark.integration


@dataclass
class Fenced:
    """A server with the documented users, on keys of a test's own."""

    stack: AsyncExitStack
    url: str
    prefix: str

    async def as_user(self, name: str, **options: float) -> Bus:
        """Open a bus as one of the users."""
        url = self.url.replace("://", f"://{self.prefix}{name}:password@")
        chosen = BusOptions(prefix=self.prefix, **options)  # type: ignore[arg-type] # numbers
        return await self.stack.enter_async_context(open_redis_bus(url, chosen))

    async def raw(self, name: str) -> redis.Redis:
        """Connect as one of the users, past the bus."""
        url = self.url.replace("://", f"://{self.prefix}{name}:password@")
        return await self.stack.enter_async_context(redis.Redis.from_url(url))


async def say(client: redis.Redis, *words: str | int) -> None:
    """Send a command as it is; raises what the server says against it."""
    await client.execute_command(*words)  # type: ignore[no-untyped-call] # redis-py's


def rules(command: str, prefix: str) -> list[str]:
    """Return the words of a documented command, with a prefix before every name."""
    words = command.split()[2:]
    named = [f"{prefix}{words[0]}"]
    for word in words[1:]:
        start = next((mark for mark in ("%W~", "%R~", "~", "&") if word.startswith(mark)), None)
        named.append(word if start is None else f"{start}{prefix}{word.removeprefix(start)}")
    return named


@pytest.fixture(params=[2, 3])
async def fenced(
    request: pytest.FixtureRequest, server_url: str, prefix: str
) -> AsyncIterator[Fenced]:
    """Give a server to which the documented users were added."""
    commands = fences(section(text_of("docs/scaling.md"), "## Users"), "text")
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(redis.Redis.from_url(server_url))
        assert len(commands) == 3
        for command in commands:
            # the crew of the tests has a client of its own, on channels of other names
            words = [*rules(command, prefix), "&context.reply.*"]
            await say(admin, "ACL SETUSER", *words)
            stack.push_async_callback(admin.acl_deluser, words[0])
        yield Fenced(stack, f"{server_url}?protocol={request.param}", prefix)


def test_the_example_computes_what_the_bus_does() -> None:
    """The stream of an owner, in the page's words and in ours."""
    names: dict[str, Any] = {}
    (example,) = fences(text_of("docs/scaling.md"), "python")
    exec(compile(example, "docs/scaling.md", "exec"), names)  # noqa: S102 - our own page

    for owner, count in (("ana", 1), ("ana", 3), ("bo", 3), ("Zoë", 64)):
        expected = shard_topic(shard_of(owner, count), count)
        assert names["stream_of"](owner, count) == expected
    assert '`stream_of("ana", 3)` is `context.build.request.{0}`' in text_of("docs/scaling.md")
    assert '`stream_of("bo", 3)` is `context.build.request.{2}`' in text_of("docs/scaling.md")


def test_the_settings_of_the_page_are_settings() -> None:
    """Each example is a part of a configuration."""
    examples = fences(text_of("docs/scaling.md"), "yaml")

    assert len(examples) == 2
    for example in examples:
        BusSettings.model_validate(yaml.safe_load(example)["bus"])


async def test_the_worker_may_do_its_work(fenced: Fenced) -> None:
    """From the channel to the answer in every kind of place, the dead letter, and leaving."""
    one = await fenced.as_user("ctxb-worker", lease_seconds=SHORT)
    two = await fenced.as_user("ctxb-worker", lease_seconds=SHORT)
    prefix = fenced.prefix
    async with one.subscribe_requests() as heard:
        await one.publish(Topics.CONTEXT_BUILD_REQUEST, b"1")
        assert await anext(heard) == [b"1"]
        await one.enqueue([b"1"])
        await two.enqueue([b"1"])
        await two.enqueue([b"1"])
    first, second = await received(one)
    again = await taken_over(two)
    await two.requests.renew(again)
    for delivery, kind in zip((first, second), ("list", "stream"), strict=True):
        place = f"{prefix}context.reply.{kind}"
        reply = answer(delivery, reply_to=place, reply_kind=kind, mode="again")
        assert [each.outcome for each in await two.finish([reply])] == [AnswerOutcome.SENT]
    await one.request_shards.set_count(3)
    for _ in range(3):
        await one.append(Topics.CONTEXT_BUILD_REQUEST, b"2")
    last = await received(one)
    topic = f"{prefix}{Topics.CONTEXT_BUILD_RESPONSE}"
    buried = answer(last[0], reply_to=topic, dead_letter="why")
    assert [each.outcome for each in await one.finish([buried])] == [AnswerOutcome.SENT]
    await one.requests.dead_letter(last[1], "why")
    await one.requests.release([last[2]])
    await one.requests.ack([last[2]])
    await one.append(Topics.LLM_RESULTS, b"row")
    assert payloads(await one.results.receive(1, wait=0.1)) == [b"row"]
    await one.reports.put({"bld": b"m"}, 60)
    assert await one.reports.get("bld") == b"m"
    for inbox in (one.requests, one.results):
        await inbox.depth()
        await inbox.trim()
        await inbox.leave()
    await one.ping()


async def test_a_stream_without_a_right_to_it_holds_up_no_other(fenced: Fenced) -> None:
    """A user of an earlier version may lack a stream that has come since; it is logged once."""
    worker = f"{fenced.prefix}ctxb-worker"
    known = [f"~{fenced.prefix}{name}" for name in ("context.build.*", "llm.*", "tools.*")]
    async with redis.Redis.from_url(fenced.url) as admin:
        await say(admin, "ACL SETUSER", worker, "resetkeys", *known)
    bus = await fenced.as_user("ctxb-worker", lease_seconds=SHORT)
    with capture_logs() as logged:
        await bus.append(Topics.LLM_RESULTS, b"row")
        assert payloads(await bus.results.receive(1, wait=0.1)) == [b"row"]
        (again,) = await until(lambda: bus.results.claim(1))
        await bus.results.ack([again])
        await bus.results.trim()
        assert (await bus.results.depth()).pending == 0
        await bus.results.leave()

    said = [line["key"] for line in logged if line["event"] == "bus.key_unusable"]
    assert said == [f"{fenced.prefix}{Topics.HISTORY_IMPORT}"]


async def test_the_worker_may_do_nothing_else(fenced: Fenced) -> None:
    """Other keys, other channels and other commands are refused."""
    worker = await fenced.raw("ctxb-worker")
    other = f"{fenced.prefix}context.other"
    for command in (
        ("GET", other),
        ("SET", f"{fenced.prefix}sessions", "1"),
        ("XADD", other, "*", "data", "1"),
        ("EVAL", "return redis.call('GET', KEYS[1])", 1, other),
        ("EVAL", "return redis.call('GET', 'other')", 0),
        ("EVAL", "return redis.call('KEYS', '*')", 0),
        ("PUBLISH", "other.channel", "1"),
        ("SUBSCRIBE", "other.channel"),
        ("KEYS", "*"),
        ("FLUSHALL",),
        ("CONFIG", "GET", "*"),
    ):
        with pytest.raises(ForbiddenError), bus_errors("try"):
            await say(worker, *command)


async def test_the_orchestrator_may_ask(fenced: Fenced) -> None:
    """Over the channel, for replies of every kind, from workers with their user."""
    replies = f"{fenced.prefix}context.reply."
    place = place_of(fenced, "ctxb-worker")
    async with place.client, open_crew(place, bus={"reply_prefixes": [replies]}) as crew:
        await crew.hire()
        bus = await fenced.as_user("ctxb-orchestrator")
        async with open_client(bus, reply_prefix=replies) as client:
            await client.build(asking(), via="channel")
        raw = await fenced.raw("ctxb-orchestrator")
        for kind in ("list", "stream"):
            metadata = {"reply_to": f"{replies}{kind}", "reply_kind": kind}
            payload = json.dumps(asking(id=kind, metadata=metadata)).encode()
            assert await bus.publish(Topics.CONTEXT_BUILD_REQUEST, payload)
        async with asyncio.timeout(60):
            assert await raw.blpop([f"{replies}list"])
            assert await raw.xread({f"{replies}stream": "0"}, block=10_000)
        assert all(await bus.find_results([Identity("o", kind) for kind in ("list", "stream")]))


async def test_the_worker_may_erase_with_the_rights_for_it(fenced: Fenced) -> None:
    """What the page adds for dead letters and for erasing is enough for both."""
    page = section(text_of("docs/scaling.md"), "## Users")
    added = re.findall(r"`ctxb (?:dead|history rm)`[^`]*`([^`]+)`", page)
    assert len(added) == 2
    worker = await fenced.as_user("ctxb-worker")
    with pytest.raises(ForbiddenError):
        await worker.forget("o")

    async with redis.Redis.from_url(fenced.url) as admin:
        await say(admin, "ACL SETUSER", f"{fenced.prefix}ctxb-worker", *" ".join(added).split())
        key = Shard(fenced.prefix).result(Identity("o", "r"))
        await admin.set(key, pack_result("f", b'{"owner_key": "o"}', 1000))
        await admin.xadd(f"{fenced.prefix}context.build.dead", {"data": '{"owner_key": "o"}'})
    forgotten = await worker.forget("o")

    assert (forgotten.results, forgotten.dead_letters) == (1, 1)
    assert await worker.find_results([Identity("o", "r")]) == [None]


def place_of(fenced: Fenced, user: str) -> RedisPlace:
    """Return a place where buses are opened as a user."""
    url = fenced.url.replace("://", f"://{fenced.prefix}{user}:password@")
    return RedisPlace(fenced.stack, url, fenced.prefix, redis.Redis.from_url(url))


async def test_the_writer_may_fill_and_empty_the_streams(fenced: Fenced) -> None:
    """It adds requests and rows; the right to do so is the right to delete those of others."""
    bus = await fenced.as_user("ctxb-writer")
    await bus.submit(json.dumps(asking()).encode())
    raw = await fenced.raw("ctxb-writer")
    for topic in (Topics.CONTEXT_BUILD_REQUEST, *ROW_TOPICS):
        await bus.append(topic, b"{}")
        await say(raw, "XADD", f"{fenced.prefix}{topic}", "MAXLEN", 0, "*", "data", "gone")
        async with redis.Redis.from_url(fenced.url) as admin:
            assert await admin.xlen(f"{fenced.prefix}{topic}") == 0
    for command in (
        ("XREAD", "STREAMS", f"{fenced.prefix}llm.results", "0"),
        ("XTRIM", f"{fenced.prefix}llm.results", "MAXLEN", 0),
        ("XADD", f"{fenced.prefix}context.build.dead", "*", "data", "1"),
        ("EVAL", "return 1", 0),
    ):
        with pytest.raises(NoPermissionError):
            await say(raw, *command)


async def test_the_orchestrator_deletes_nothing_of_others(fenced: Fenced) -> None:
    """Neither by commands, nor by a script or a function that it were allowed to call."""
    prefix, stream = fenced.prefix, f"{fenced.prefix}context.build.request"
    library = f"test_{secrets.token_hex(4)}"
    function = f"""#!lua name={library}
        redis.register_function('{library}_add', function(keys, arguments)
          return redis.call('XADD', keys[1], '*', 'data', arguments[1])
        end)"""
    script = "return redis.call('XADD', KEYS[1], '*', 'data', ARGV[1])"
    orchestrator = await fenced.raw("ctxb-orchestrator")
    trimming = [
        ("XADD", stream, "MAXLEN", 0, "*", "data", "1"),
        ("XADD", stream, "*", "data", "1"),
        ("XTRIM", stream, "MAXLEN", 0),
        ("DEL", stream),
    ]
    calling = [("EVAL", script, 1, stream, "1"), ("FCALL", f"{library}_add", 1, stream, "1")]
    async with redis.Redis.from_url(fenced.url) as admin:
        await admin.xadd(stream, {"data": "waits"})
        await say(admin, "FUNCTION", "LOAD", function)
        try:
            for command in (*trimming, *calling):
                with pytest.raises(ForbiddenError), bus_errors("try"):
                    await say(orchestrator, *command)
            # with the right to call them, and to write to the stream
            rights = ("+eval", "+fcall", f"~{stream}")
            await say(admin, "ACL", "SETUSER", f"{prefix}ctxb-orchestrator", *rights)
            for command in (*trimming, *calling):
                with pytest.raises(ForbiddenError), bus_errors("try"):
                    await say(orchestrator, *command)
        finally:
            await say(admin, "FUNCTION", "DELETE", library)
        assert await admin.xlen(stream) == 1


async def test_the_orchestrator_reads_no_requests(fenced: Fenced) -> None:
    """Requests, answers and dead letters of others are out of its reach."""
    orchestrator = await fenced.raw("ctxb-orchestrator")
    prefix = fenced.prefix
    for command in (
        ("XREAD", "STREAMS", f"{prefix}context.build.request", "0"),
        ("XREAD", "STREAMS", f"{prefix}context.build.dead", "0"),
        ("XADD", f"{prefix}context.build.dead", "*", "data", "1"),
        ("GET", f"{prefix}context.build.report.bld"),
        ("SET", f"{prefix}context.build.shards", "1"),
        ("EVAL", "return 1", 0),
    ):
        with pytest.raises(NoPermissionError):
            await say(orchestrator, *command)


async def test_the_doctor_names_what_a_user_may_not_do(fenced: Fenced) -> None:
    """A worker's user has all that a worker needs; what an orchestrator's lacks of it is named."""
    denied = {}
    for name in ("ctxb-worker", "ctxb-orchestrator"):
        url = fenced.url.replace("://", f"://{fenced.prefix}{name}:password@")
        options = BusOptions(prefix=fenced.prefix)
        async with open_redis_survey(url, options, []) as survey:
            denied[name] = await survey.missing_permissions()

    assert denied["ctxb-worker"] == []
    assert denied["ctxb-orchestrator"] is not None
    assert any("EVAL" in each for each in denied["ctxb-orchestrator"])


async def test_the_worker_may_be_looked_after_with_the_rights_for_it(fenced: Fenced) -> None:
    """What the page adds for `ctxb stats`, `ctxb doctor` and `ctxb tail` is enough for them."""
    page = section(text_of("docs/scaling.md"), "## Users")
    added = re.findall(r"`ctxb (?:stats|doctor|tail)`[^`]*`([^`]+)`", page)
    assert len(added) == 3
    user = f"{fenced.prefix}ctxb-worker"
    url = fenced.url.replace("://", f"://{user}:password@")
    options = BusOptions(prefix=fenced.prefix)
    await (await fenced.as_user("ctxb-worker")).submit(b"{}")
    async with open_redis_survey(url, options, ["context.reply."]) as survey:
        for forbidden in (survey.state, survey.servers):
            with pytest.raises(ForbiddenError):
                await forbidden()
        assert await survey.subscriber_limit() is None

        async with redis.Redis.from_url(fenced.url) as admin:
            await say(admin, "ACL SETUSER", user, *" ".join(added).split())
        assert [each.entries for each in (await survey.state()).requests] == [1]
        assert await survey.servers()
        assert await survey.subscriber_limit() is not None
        async with survey.monitor() as heard:
            bus = await fenced.as_user("ctxb-worker")
            await bus.publish(Topics.CONTEXT_BUILD_RESPONSE, b"1")
            assert (await anext(heard)).payload == b"1"
