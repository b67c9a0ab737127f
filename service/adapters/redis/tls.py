"""TLS to Redis or Valkey, as the settings want it."""

import ssl
from collections.abc import Callable
from pathlib import Path

from service.config.endpoints import TlsSettings
from service.errors import ConfigError


def tls_arguments(url: str, tls: TlsSettings) -> dict[str, str | bool]:
    """Return what a pool of connections has to know of TLS; raises `ConfigError`."""
    if not url.startswith("rediss:"):
        if tls != TlsSettings():
            raise ConfigError("bus.tls: the scheme of bus.url has to be rediss, or there is no TLS")
        return {}
    _check(tls)
    files = {
        "ssl_ca_certs": tls.ca_file,
        "ssl_certfile": tls.cert_file,
        "ssl_keyfile": tls.key_file,
    }
    named: dict[str, str | bool] = {name: str(path) for name, path in files.items() if path}
    # a URL may say it as well, as ssl_check_hostname=False
    return named if tls.check_hostname else {**named, "ssl_check_hostname": False}


def _check(tls: TlsSettings) -> None:
    """Raise `ConfigError` for files that can't be used; redis-py says so only when it connects."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.ca_file:
        _load("ca_file", tls.ca_file, lambda: context.load_verify_locations(tls.ca_file))
    if tls.key_file and not tls.cert_file:
        raise ConfigError("bus.tls.key_file: it needs the certificate that it belongs to")
    if tls.cert_file:
        pair = (tls.cert_file, tls.key_file)
        # without a password, OpenSSL would ask for that of an encrypted key on the terminal
        _load("cert_file", tls.cert_file, lambda: context.load_cert_chain(*pair, password=""))


def _load(setting: str, path: Path, load: Callable[[], None]) -> None:
    try:
        load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"bus.tls.{setting}: {path}: {error}") from error
