from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from service.adapters.bus_options import BusOptions
from service.adapters.redis.clients import make_clients, tls_arguments
from service.config.endpoints import TlsSettings
from service.errors import ConfigError


@pytest.mark.parametrize("protocol", [2, 3])
async def test_reads_that_wait_have_no_time_limit_of_their_own(protocol: int) -> None:
    """Whatever the URL says: it is meant for commands that answer at once."""
    async with AsyncExitStack() as stack:
        url = f"redis://127.0.0.1:1?protocol={protocol}&socket_timeout=0.2"
        clients = make_clients(stack, url, BusOptions())
        limits = [
            client.connection_pool.connection_kwargs["socket_timeout"]
            for client in (clients.commands, clients.blocking)
        ]

    assert limits == [0.2, None]


def test_nothing_is_said_of_tls_where_nothing_is_set() -> None:
    """The query of a URL takes precedence then."""
    assert tls_arguments("redis://host", TlsSettings()) == {}
    assert tls_arguments("rediss://host", TlsSettings()) == {}
    assert tls_arguments("rediss://host", TlsSettings(check_hostname=False)) == {
        "ssl_check_hostname": False
    }


def test_settings_without_tls_are_a_mistake() -> None:
    """Nobody who names an authority wants to talk in the clear."""
    with pytest.raises(ConfigError, match=r"bus\.tls"):
        tls_arguments("redis://host", TlsSettings(check_hostname=False))


def test_a_file_that_is_not_there_is_named() -> None:
    """With its setting and path."""
    with pytest.raises(ConfigError, match=r"bus\.tls\.ca_file: nowhere/ca\.pem"):
        tls_arguments("rediss://host", TlsSettings(ca_file=Path("nowhere/ca.pem")))
