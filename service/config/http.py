"""The settings of the HTTP interface: where it is, who may use it, and what it shows."""

import re
from ipaddress import ip_address
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator

from service.config.section import Section, Text

#: Characters of a token: fewer can be tried out.
SHORTEST_TOKEN: Final = 16

#: What browsers leave out of an origin.
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")


def _origin(value: str) -> str:
    """Return an origin that can match: it is compared letter by letter with what browsers send."""
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


Origin = Annotated[str, AfterValidator(_origin)]


class HttpSettings(Section):
    """Where a worker takes requests over HTTP, and shows its builds."""

    host: Text = "127.0.0.1"
    #: 0 takes a free one, which is logged; None serves nobody.
    port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    #: What callers have to send; may be None only where no other machine reaches ``host``.
    token: SecretStr | None = None
    #: Names under which callers reach it, besides its address.
    allowed_hosts: tuple[Text, ...] = ()
    #: Pages of other origins that may ask, and read what is answered.
    allowed_origins: tuple[Origin, ...] = ()
    #: Whether messages and rows are shown with what was said in them.
    content: Literal["redacted", "full"] = "redacted"
    #: Whether contexts can be asked for.
    build: bool = True
    #: Requests that cost work, at the same time.
    concurrency: Annotated[int, Field(ge=1, le=1_000)] = 8
    #: The newest builds of the worker, which are kept to be shown.
    builds: Annotated[int, Field(ge=1, le=10_000)] = 200

    @field_validator("token")
    @classmethod
    def _ask_strangers_for_a_token(
        cls, value: SecretStr | None, info: ValidationInfo
    ) -> SecretStr | None:
        if value is not None:
            secret = value.get_secret_value()
            if len(secret) < SHORTEST_TOKEN or not secret.isascii() or not secret.isprintable():
                raise ValueError(f"{SHORTEST_TOKEN} printable ASCII characters or more are needed")
            return value
        host = info.data.get("host", "")
        if info.data.get("port") is not None and not is_loopback(host):
            raise ValueError(f"is needed where others than this machine reach http.host ({host})")
        return value


def is_loopback(host: str) -> bool:
    """Tell whether an address is reached by its own machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def bracketed(host: str) -> str:
    """Return a host as it stands in an address."""
    return f"[{host}]" if ":" in host else host
