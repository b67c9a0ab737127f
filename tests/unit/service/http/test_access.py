"""Who may ask, by what a request says of itself."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pydantic import SecretStr
from starlette.datastructures import Headers

from service.config.endpoints import HttpSettings
from service.http.access import check_origin, check_token
from service.http.error_responses import HttpError

TOKEN = "a-token-for-these-tests"
LOCAL = HttpSettings(port=8766)
OPEN = HttpSettings(port=8766, host="0.0.0.0", token=SecretStr(TOKEN))  # noqa: S104


def check(settings: HttpSettings, path: str = "/v1/builds", **headers: str) -> None:
    """Check a request."""
    given = Headers({name.replace("_", "-"): value for name, value in headers.items()})
    check_origin(settings, given, path)
    check_token(settings, given, path)


@contextmanager
def refused(code: str) -> Iterator[None]:
    """Expect an error with a code."""
    with pytest.raises(HttpError) as caught:
        yield
    assert caught.value.code == code


@pytest.mark.parametrize("host", ["127.0.0.1:8766", "localhost", "LOCALHOST:1", "[::1]:8766"])
def test_this_machine_is_served_under_its_own_names(host: str) -> None:
    """With any port, as a tunnel has another."""
    check(LOCAL, host=host)


@pytest.mark.parametrize("host", ["evil.example:8766", "", "127.0.0.1.evil.example", "localhost."])
def test_a_name_that_was_bound_to_this_machine_is_refused(host: str) -> None:
    """Else a page of that name could read what only this machine may."""
    with refused("misdirected"):
        check(LOCAL, host=host)


def test_other_names_can_be_allowed() -> None:
    """For a proxy in front, in any letters."""
    settings = LOCAL.model_copy(update={"allowed_hosts": ("ctxb.Example",)})
    check(settings, host="CTXB.example:443")
    open_settings = OPEN.model_copy(update={"allowed_hosts": ("ctxb.example",)})
    with refused("misdirected"):
        check(open_settings, host="other.example", authorization=f"Bearer {TOKEN}")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9999"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_pages_of_others_are_refused(headers: dict[str, str]) -> None:
    """Even where the browser would send what they ask for."""
    with refused("forbidden"):
        check(LOCAL, host="localhost:8766", **headers)


ALLOWED = LOCAL.model_copy(update={"allowed_origins": ("https://app.example",)})


@pytest.mark.parametrize("site", ["cross-site", "same-site", "same-origin"])
def test_pages_that_are_allowed_may_ask(site: str) -> None:
    """From wherever they are; and nobody else thereby."""
    check(ALLOWED, host="localhost", origin="https://app.example", sec_fetch_site=site)
    check(ALLOWED, host="localhost", origin="http://localhost", sec_fetch_site="same-origin")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://app.example"},
        {"origin": "https://app.example:8443"},
        {"origin": "https://app.example.evil.example"},
        {"origin": "https://evil.example"},
        {"origin": "HTTPS://APP.EXAMPLE"},
        {"origin": "null"},
        {"origin": ""},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_others_are_refused_where_one_is_allowed(headers: dict[str, str]) -> None:
    """Also what is like its name, and what doesn't say where it comes from."""
    with refused("forbidden"):
        check(ALLOWED, host="localhost", **headers)


def test_a_page_that_is_allowed_needs_the_token_too() -> None:
    """And has to name a host that is served."""
    settings = ALLOWED.model_copy(update={"token": SecretStr(TOKEN)})
    with refused("unauthorized"):
        check(settings, host="localhost", origin="https://app.example")
    with refused("misdirected"):
        check(settings, host="evil.example", origin="https://app.example")


def test_links_on_other_pages_lead_to_ours() -> None:
    """The page is everybody's; what it asks for then is not."""
    check(LOCAL, "/", host="localhost:8766", sec_fetch_site="cross-site")
    with refused("misdirected"):
        check(LOCAL, "/", host="evil.example")


def test_our_own_page_may_ask() -> None:
    """Under the name under which it was loaded."""
    check(
        LOCAL, host="localhost:8766", origin="http://localhost:8766", sec_fetch_site="same-origin"
    )


@pytest.mark.parametrize(
    "given", ["", TOKEN, f"Basic {TOKEN}", "Bearer", "Bearer other-token-of-length", "Bearer ü"]
)
@pytest.mark.parametrize("path", ["/v1/builds", "/v1/openapi.json", "/version"])
def test_who_has_not_the_token_is_refused(given: str, path: str) -> None:
    """On every path that shows or does something."""
    with refused("unauthorized"):
        check(OPEN, path, host="ctxb", **({"authorization": given} if given else {}))


def test_who_has_the_token_may_ask() -> None:
    """The scheme in any letters; the files of the page need none, as a person types it there."""
    check(OPEN, host="ctxb", authorization=f"bearer {TOKEN}")
    check(OPEN, "/", host="ctxb")
    check(OPEN, "/robots.txt", host="ctxb")


def test_a_token_that_is_set_is_required_on_this_machine_too() -> None:
    """It is there for a reason."""
    with refused("unauthorized"):
        check(HttpSettings(port=0, token=SecretStr(TOKEN)), host="localhost")
