"""The health of a worker, as reported over HTTP."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.adapters.memory.bus import MemoryBus
from service.adapters.memory.store import MemoryHistory
from service.app import connect_client, open_bus, open_observed_worker, open_worker
from service.config.endpoints import HealthSettings
from service.config.settings import BusSettings, Settings
from service.errors import BusError, ConfigError
from service.http.health import open_health
from service.http.prometheus import PrometheusMetrics
from service.observe.readiness import Check, Readiness, stuck_after
from service.ports.bus import Answer, AnswerOutcome, Bus, Delivery, Receipt
from service.wire.protocol import Topics
from service.worker.client import ContextClient
from service.worker.runner import Worker
from tests.probing import Measured, asked, measured
from tests.serving import asking, working

SETTINGS = Settings(bus=BusSettings(url="memory://"), health=HealthSettings(port=0))


class Hands:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@dataclass
class Scene:
    """A worker on a bus in memory, with a client of it and the address of its pages."""

    bus: Bus
    worker: Worker
    client: ContextClient
    address: str
    clock: Hands
    stop: asyncio.Event
    metrics: PrometheusMetrics

    async def status(self, page: str) -> int:
        """Return the status of a page."""
        status, _ = await asked(f"{self.address}{page}")
        return status

    async def moved(self, act: Callable[[], Awaitable[object]], name: str, *labels: str) -> float:
        """Do something; return by how much a number has moved, as soon as it has."""
        before = (await measured(self.address))(name, *labels)
        await act()

        async def after() -> float:
            return (await measured(self.address))(name, *labels) - before

        async with asyncio.timeout(60):
            while not (difference := await after()):  # noqa: ASYNC110 - the worker emits no event
                await asyncio.sleep(0.01)
        return difference


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """Give a worker that takes requests."""
    async with scene_of(SETTINGS) as scene, at_work(scene):
        yield scene


@asynccontextmanager
async def scene_of(settings: Settings) -> AsyncIterator[Scene]:
    """Give a worker that has not begun."""
    metrics, clock = PrometheusMetrics("memory"), Hands()
    async with (
        open_bus(settings) as connected,
        open_worker(settings, connected.bus, metrics) as worker,
        connect_client(settings, connected.bus) as client,
    ):
        bus = connected.bus
        worker.pulse._clock = clock
        worker.pulse.beat()
        async with open_health(settings, 0, bus, worker, metrics) as address:
            yield Scene(bus, worker, client, address, clock, asyncio.Event(), metrics)


def at_work(scene: Scene) -> AbstractAsyncContextManager[None]:
    """Let the worker of a scene work."""
    return working(scene.worker, scene.bus, scene.stop)


# --- /livez ----------------------------------------------------------------------------------


async def test_a_loop_that_is_stuck_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it has not gone round for some leases; bus and store are not asked."""

    async def hang(*_args: object, **_options: object) -> list[Delivery]:
        await released.wait()
        return []

    released = asyncio.Event()
    monkeypatch.setattr(MemoryBus, "ping", hang)
    monkeypatch.setattr(MemoryHistory, "recent", hang)
    async with scene_of(SETTINGS) as scene:
        monkeypatch.setattr(scene.bus.requests, "receive", hang)
        async with at_work(scene):
            assert await scene.status("/livez") == 200
            scene.clock.now += (
                stuck_after(SETTINGS.bus.lease_seconds, SETTINGS.bus.socket_timeout_seconds) + 1
            )
            assert await scene.status("/livez") == 503
            monkeypatch.undo()
            released.set()


async def test_a_worker_at_rest_is_alive(scene: Scene) -> None:
    """Its loop goes round though no request comes."""
    for _ in range(3):
        scene.clock.now += (
            stuck_after(SETTINGS.bus.lease_seconds, SETTINGS.bus.socket_timeout_seconds) + 1
        )
        async with asyncio.timeout(60):
            while await scene.status("/livez") != 200:  # noqa: ASYNC110 - the loop emits no event
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("sent", "address"),
    [
        (b"", "127.0.0.1"),
        (b"GET /livez HTTP/1.1\r\nHos", "127.0.0.1"),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", "127.0.0.1"),
        # these are never at rest, but from elsewhere
        pytest.param(
            b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" * 9_000,
            "127.0.0.2",
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_slow_clients_do_not_keep_probes_out(scene: Scene, sent: bytes, address: str) -> None:
    """However many there are, and whether they send a head slowly or read nothing."""
    host, port = scene.address.removeprefix("http://").split(":")
    loop = asyncio.get_running_loop()
    with ExitStack() as slow:
        for _ in range(80):
            transport, _ = await loop.create_connection(
                asyncio.Protocol, host, int(port), local_addr=(address, 0)
            )
            transport.pause_reading()
            transport.write(sent)
            slow.callback(transport.abort)
        for _ in range(3):
            assert await scene.status("/livez") == 200
            assert await scene.status("/readyz") == 200
    await asyncio.sleep(0)


async def test_slow_checks_do_not_keep_probes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a bus hangs, readiness is refused to many at a time, and liveness answers."""
    answers, checks = asyncio.Event(), Readiness.checks

    async def hang(readiness: Readiness) -> list[Check]:
        await answers.wait()
        return await checks(readiness)

    monkeypatch.setattr(Readiness, "checks", hang)
    monkeypatch.setattr("service.http.health.MOST_CHECKS", 2)
    async with scene_of(SETTINGS) as hanging, at_work(hanging):
        waiting = [asyncio.create_task(hanging.status("/readyz")) for _ in range(3)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert {task.result() for task in done} == {503}
        assert await hanging.status("/livez") == 200
        answers.set()
        assert sorted(await asyncio.gather(*waiting)) == [200, 200, 503]


# --- /readyz ---------------------------------------------------------------------------------


async def test_a_worker_is_ready_from_its_start_to_its_end() -> None:
    """With every check by name; it still answers while it stops."""
    async with scene_of(SETTINGS) as scene:
        assert await scene.status("/readyz") == 503
        async with at_work(scene):
            status, reported = await asked(f"{scene.address}/readyz")
            assert (status, reported["ready"]) == (200, True)
            assert reported["checks"] == [
                {"name": "worker", "ok": True, "detail": "taking requests"},
                {"name": "bus", "ok": True, "detail": "answers"},
                {"name": "store", "ok": True, "detail": "answers"},
            ]
            scene.stop.set()
            status, reported = await asked(f"{scene.address}/readyz")
            assert (status, reported["ready"]) == (503, False)
            assert reported["checks"][0] == {"name": "worker", "ok": False, "detail": "stopping"}
            assert await scene.status("/livez") == 200


async def test_a_worker_without_its_bus_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """But it is alive: restarting it would not bring the bus back."""

    async def away(_bus: Bus) -> None:
        raise BusError("connect to redis://ana:hidden@host: refused")

    monkeypatch.setattr(MemoryBus, "ping", away)
    async with scene_of(SETTINGS) as scene, at_work(scene):
        status, reported = await asked(f"{scene.address}/readyz")
        assert await scene.status("/livez") == 200

    assert status == 503
    assert {check["name"]: check["ok"] for check in reported["checks"]} == {
        "worker": True,
        "bus": False,
        "store": True,
    }
    assert "hidden" not in json.dumps(reported)


# --- /metrics --------------------------------------------------------------------------------


async def test_a_build_moves_its_metrics_by_one(scene: Scene) -> None:
    """The outcome and every stage; a request that can't be built counts by its code."""
    before = await measured(scene.address)
    moved = await scene.moved(
        lambda: scene.client.send(asking()), "build_requests_total", "success"
    )
    after = await measured(scene.address)

    assert moved == 1
    for stage in ("queue", "build", "gather", "fit", "record", "send"):
        name = "build_duration_seconds_count"
        assert after(name, stage) - before(name, stage) == 1
    for name, *labels in (
        ("history_fetch_duration_seconds_count", "memory"),
        ("context_utilization_ratio_count", "none"),
        ("context_tokens_count", "THIS_MOMENT"),
    ):
        assert after(name, *labels) - before(name, *labels) == 1
    impossible = asking(content={"current_input": "x", "context": {"max_tokens": 2}})
    refused = lambda: scene.client.send(impossible)  # noqa: E731 - what is done, in one line
    assert await scene.moved(refused, "build_requests_total", "budget_exceeded") == 1


async def test_a_retry_counts_as_a_duplicate(scene: Scene) -> None:
    """It was answered with the stored answer, and nothing was built."""
    request = asking(id="msg_1")
    await scene.client.send(request)
    before = await measured(scene.address)
    again = lambda: scene.client.send(request)  # noqa: E731 - as above
    assert await scene.moved(again, "duplicates_suppressed_total", "stored") == 1
    after = await measured(scene.address)

    name = "build_requests_total"
    assert after(name, "success") == before(name, "success")


async def test_what_goes_wrong_is_counted(scene: Scene) -> None:
    """Replies that nobody hears, and entries that nobody can be answered for."""
    alone = json.dumps(asking(metadata={"reply_to": "context.reply.nobody"})).encode()
    submit, append = scene.bus.submit, scene.bus.append

    assert await scene.moved(lambda: submit(alone), "reply_dropped_total", "no_subscriber") == 1
    assert await scene.moved(lambda: submit(b"?"), "dead_letters_total", "unreadable") == 1
    result = lambda: append(Topics.LLM_RESULTS, b"?")  # noqa: E731 - as above
    assert await scene.moved(result, "dead_letters_total", "result") == 1


async def test_an_answer_that_came_too_late_counts(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker has taken the delivery over, and this one's answer was not sent."""

    async def lost(answers: Sequence[Answer]) -> list[Receipt]:
        return [Receipt(outcome=AnswerOutcome.NOT_MINE) for _ in answers]

    monkeypatch.setattr(scene.bus, "finish", lost)
    request = json.dumps(asking()).encode()
    late = lambda: scene.bus.submit(request)  # noqa: E731 - as above
    before = await measured(scene.address)
    assert await scene.moved(late, "duplicates_suppressed_total", "lease_lost") == 1
    after = await measured(scene.address)

    name = "build_requests_total"
    assert after(name, "success") == before(name, "success")


async def test_an_answer_that_may_not_be_sent_counts_as_what_is_sent_instead(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context was built, but what the bus took is the error."""
    finish = scene.bus.finish

    async def forbidding(answers: Sequence[Answer]) -> list[Receipt]:
        if any(answer.reply_kind == "list" for answer in answers):
            return [Receipt(outcome=AnswerOutcome.FORBIDDEN) for _ in answers]
        return await finish(answers)

    monkeypatch.setattr(scene.bus, "finish", forbidding)
    reply = {"reply_to": "context.reply.me", "reply_kind": "list"}
    request = json.dumps(asking(metadata=reply)).encode()
    submit = lambda: scene.bus.submit(request)  # noqa: E731 - as above
    before = await measured(scene.address)
    assert await scene.moved(submit, "build_requests_total", "invalid_request") == 1
    after = await measured(scene.address)

    name = "build_requests_total"
    assert after(name, "success") == before(name, "success")


async def test_metrics_name_nobody(scene: Scene) -> None:
    """Labels take few values, and none of them comes from a request."""
    content = {"current_input": "Hello", "context": {"blocks": {"OF_ANA": "x"}, "model": "ana-1"}}
    await scene.client.send(asking(id="msg_of_ana", owner_key="ana", content=content))
    now: Measured = await measured(scene.address)
    labels = {
        (name, value)
        for family in now.families
        for sample in family.samples
        for name, value in sample.labels.items()
    }

    assert {name for name, _ in labels} == {
        *("le", "stage", "outcome", "reason", "stream", "version"),
        *("backend", "block", "check", "decision", "kind", "model", "result", "strategy"),
    }
    assert {("block", "custom"), ("model", "other")} <= labels
    assert not [value for _, value in labels if "ana" in value.lower() or "msg" in value]


async def test_every_metric_has_a_line(scene: Scene) -> None:
    """The page on metrics has all of ours with their labels, and no others, not even in alarms."""
    page = Path(__file__).parents[2].joinpath("docs", "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `contextbuilder_(\w+)` \|([^|]*)\|", page, re.MULTILINE)
    # most blocks and strategies have no line before a first build
    tight = {"blocks": {"MOOD": "calm " * 2_000}, "max_tokens": 2_300, "reserve_tokens": 0}
    await scene.client.send(asking(content={"current_input": "Hello", "context": tight}))
    scene.metrics.count(
        "tool_refresh", "git", "changed"
    )  # it follows no server of tools, and serves no HTTP
    scene.metrics.record_http_request("/v1/build", "POST", "2xx", 0.1)
    reported: dict[str, set[str]] = {}
    for family in (await measured(scene.address)).families:
        if family.name.startswith("contextbuilder_") and not family.name.endswith("_created"):
            suffix = "_total" if family.type == "counter" else ""
            labels = {name for sample in family.samples for name in sample.labels} - {"le"}
            reported[family.name.removeprefix("contextbuilder_") + suffix] = labels

    assert {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows} == reported
    named = re.findall(r"contextbuilder_(\w+)", page)
    assert {name.removesuffix("_bucket") for name in named} == set(reported)


# --- the server ------------------------------------------------------------------------------


async def test_a_port_that_is_taken_is_refused_at_the_start() -> None:
    """With the setting's name, and what else it may be."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = SETTINGS.model_copy(
            update={"health": HealthSettings(port=taken.getsockname()[1])}
        )
        async with open_bus(settings) as connected:
            with pytest.raises(ConfigError, match=r"health\.port: .*0 takes a free port"):
                async with open_observed_worker(settings, connected.bus):
                    pass


async def test_the_default_makes_way_where_it_is_taken() -> None:
    """A second worker of a machine starts without a word about ports, and can be asked."""
    settings = SETTINGS.model_copy(update={"health": HealthSettings()})
    with capture_logs() as logs:
        async with (
            open_bus(settings) as connected,
            open_observed_worker(settings, connected.bus),
            open_observed_worker(settings, connected.bus),
        ):
            addresses = [each["address"] for each in logs if "address" in each]
            answers = [await asked(f"{address}/livez") for address in addresses]

    assert [status for status, _ in answers] == [200, 200]
    assert len({*addresses}) == 2
    assert {each["log_level"] for each in logs} <= {"debug", "info"}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
async def test_a_free_port_is_found_and_logged(host: str) -> None:
    """The address in the log can be asked."""
    if host == "::1" and not _has_ipv6():
        pytest.skip("this machine speaks no IPv6")
    settings = SETTINGS.model_copy(update={"health": HealthSettings(host=host, port=0)})
    async with open_bus(settings) as connected:
        with capture_logs() as logs:
            async with open_observed_worker(settings, connected.bus):
                (address,) = (each["address"] for each in logs if "address" in each)
                status, _ = await asked(f"{address}/livez")
                assert status == 200
        with pytest.raises(OSError, match="refused"):
            await asked(f"{address}/livez")


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


async def test_without_a_port_nobody_is_answered() -> None:
    """Null opens nothing."""
    settings = SETTINGS.model_copy(update={"health": HealthSettings(port=None)})
    async with open_bus(settings) as connected:
        with capture_logs() as logs:
            async with open_observed_worker(settings, connected.bus):
                pass

    assert not [each for each in logs if each["event"] == "health.listening"]
