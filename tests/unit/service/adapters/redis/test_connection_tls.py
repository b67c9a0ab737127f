from pathlib import Path

import pytest

from service.adapters.redis.connection import tls_arguments
from service.config.endpoints import TlsSettings
from service.errors import ConfigError


def test_nothing_is_said_of_tls_where_nothing_is_set() -> None:
    """What a URL says in its query stands then."""
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
