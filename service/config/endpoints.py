"""Settings of what a process connects to, and of what connects to it."""

import os
import re
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator

from service.config.section import Days, Port, Section, Text


class TlsSettings(Section):
    """TLS of connections to the bus."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    check_hostname: bool = True


class StoreSettings(Section):
    """Where history and profiles are stored, and for how long."""

    url: SecretStr = SecretStr("memory://")
    retention_days: Days | None = None
    pool_size: Annotated[int, Field(ge=2, le=1_000)] = 10
    connect_timeout_seconds: Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)] = 5.0
    statement_timeout_seconds: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 30.0


class HealthSettings(Section):
    """The server for probes and metrics."""

    host: Text = "127.0.0.1"
    port: Port | None = 8765


#: The shortest token: shorter ones can be guessed.
MIN_TOKEN_LENGTH: Final = 16

#: Ports that browsers leave out of an origin.
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")


def _check_origin(value: str) -> str:
    """Return an origin if it can match: it is compared with what browsers send, as text."""
    url = urlsplit(value)
    host = url.hostname or ""
    if url.scheme not in _DEFAULT_PORTS or not _HOST.fullmatch(host):
        raise ValueError(
            "must be an origin, such as https://app.example.com: any page, *, can't be allowed"
        )
    port = "" if url.port in (None, _DEFAULT_PORTS[url.scheme]) else f":{url.port}"
    sent = f"{url.scheme}://{bracketed(host)}{port}"
    if value != sent:
        raise ValueError(f"must be written as browsers send it: {sent}")
    return value


Origin = Annotated[str, AfterValidator(_check_origin)]


class HttpSettings(Section):
    """The HTTP interface of a worker: requests, and the inspector of its builds."""

    host: Text = "127.0.0.1"
    port: Port | None = None
    token: SecretStr | None = None
    allowed_hosts: tuple[Text, ...] = ()
    allowed_origins: tuple[Origin, ...] = ()
    content: Literal["redacted", "full"] = "redacted"
    build: bool = True
    concurrency: Annotated[int, Field(ge=1, le=1_000)] = 8
    builds: Annotated[int, Field(ge=1, le=10_000)] = 200

    @field_validator("token")
    @classmethod
    def _check_token(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if value is not None:
            secret = value.get_secret_value()
            if len(secret) < MIN_TOKEN_LENGTH or not secret.isascii() or not secret.isprintable():
                raise ValueError(
                    f"{MIN_TOKEN_LENGTH} printable ASCII characters or more are needed"
                )
            return value
        host = info.data.get("host", "")
        if info.data.get("port") is not None and not is_loopback(host):
            raise ValueError(f"is needed where others than this machine reach http.host ({host})")
        return value


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def bracketed(host: str) -> str:
    """Return a host as URLs have it: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host


#: OpenTelemetry's own variables; of each group, the first that is set counts.
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_EXPORTERS: Final = "OTEL_TRACES_EXPORTER"
_DISABLED: Final = "OTEL_SDK_DISABLED"

#: The protocol of the exporter, the only one supported.
PROTOCOL: Final = "http/protobuf"
DEFAULT_ENDPOINT: Final = "http://localhost:4318"


class TelemetrySettings(Section):
    """Whether spans are exported; endpoint and sampling come from OpenTelemetry's variables."""

    traces: Literal["auto", "otlp", "none"] = "auto"

    def exports(self, variables: Mapping[str, str] = os.environ) -> bool:
        """Return whether spans are to be exported."""
        if self.traces == "none" or variables.get(_DISABLED, "").strip().lower() == "true":
            return False
        if self.traces == "otlp":
            return True
        exporters = (variables.get(_EXPORTERS) or "otlp").split(",")
        return _first_set(_ENDPOINTS, variables) is not None and "otlp" in map(str.strip, exporters)


def otlp_endpoint(variables: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the collector."""
    return _first_set(_ENDPOINTS, variables) or DEFAULT_ENDPOINT


def unsupported_protocol(variables: Mapping[str, str] = os.environ) -> str | None:
    """Return the protocol that the variables request, if it isn't the supported one."""
    requested = _first_set(_PROTOCOLS, variables)
    return None if requested in (None, PROTOCOL) else requested


def _first_set(names: tuple[str, ...], variables: Mapping[str, str]) -> str | None:
    """Return the value of the first variable that is set and not empty."""
    return next((variables[name].strip() for name in names if variables.get(name)), None)
