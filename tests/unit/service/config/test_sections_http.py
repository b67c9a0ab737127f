"""Who may be served over HTTP."""

from collections.abc import Callable

import pytest

from service.config.load import load_settings
from service.config.sections import is_loopback

#: Loads the settings and returns what is wrong with them.
Problems = Callable[..., list[str]]

LONG = "sixteen-characters"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "ctxb.example.org"])  # noqa: S104
def test_strangers_need_a_token(host: str, problems: Problems) -> None:
    """An address that other machines may reach is refused without one."""
    (line,) = problems(http={"host": host, "port": 8766})
    assert "http.token" in line
    assert host in line
    assert load_settings(None, http={"host": host, "port": 8766, "token": LONG}).http.token


def test_what_is_not_served_needs_no_token() -> None:
    """Without a port nobody is answered, whatever the address; that is the default."""
    assert load_settings(None).http.port is None
    assert load_settings(None, http={"host": "0.0.0.0"}).http.token is None  # noqa: S104


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST"])
def test_this_machine_needs_none(host: str) -> None:
    """What no other machine reaches may be served without."""
    assert is_loopback(host)
    assert load_settings(None, http={"host": host, "port": 0}).http.token is None


@pytest.mark.parametrize("token", ["short", "ümlaut-" * 4, "with\nnewlines-in-it"])
def test_a_token_that_cannot_be_sent_or_can_be_guessed_is_refused(
    token: str, problems: Problems
) -> None:
    """And it isn't repeated."""
    (line,) = problems(http={"token": token})
    assert "http.token" in line
    assert token not in line


@pytest.mark.parametrize(
    "origin",
    [
        "https://app.example.com",
        "http://localhost:5173",
        "http://127.0.0.1:8080",
        "http://[::1]:8080",
        "https://xn--bcher-kva.example",
        "http://build_host",
    ],
)
def test_a_page_can_be_allowed(origin: str) -> None:
    """By its origin; none is by itself."""
    assert load_settings(None).http.allowed_origins == ()
    assert load_settings(None, http={"allowed_origins": [origin]}).http.allowed_origins == (origin,)


@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "null",
        "",
        "app.example.com",
        "https://*.example.com",
        "https://",
        "file:///home",
        "chrome-extension://abc",
        "https://bücher.example",
        "https://a b.example",
        "https://app.example:99999",
    ],
)
def test_what_names_no_page_or_any_is_refused(origin: str, problems: Problems) -> None:
    """Any page that somebody opens could ask otherwise."""
    (line,) = problems(http={"allowed_origins": [origin]})
    assert "http.allowed_origins" in line


@pytest.mark.parametrize(
    ("origin", "sent"),
    [
        ("https://app.example/", "https://app.example"),
        ("https://app.example:443", "https://app.example"),
        ("HTTP://App.Example:8080", "http://app.example:8080"),
        ("https://app.example/page?x#y", "https://app.example"),
        ("https://ana:secret@app.example", "https://app.example"),
    ],
)
def test_what_would_never_match_is_refused(origin: str, sent: str, problems: Problems) -> None:
    """And how it should be written is told."""
    (line,) = problems(http={"allowed_origins": [origin]})
    assert line.endswith(f"as browsers send it: {sent}")
