"""What a process serves and connects to: HTTP, health and telemetry."""

from collections.abc import Callable

import pytest

from service.config.endpoints import (
    TelemetrySettings,
    is_loopback,
    otlp_endpoint,
    unsupported_protocol,
)
from service.config.load import load_settings

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
    """And the error says how to write it."""
    (line,) = problems(http={"allowed_origins": [origin]})
    assert line.endswith(f"as browsers send it: {sent}")


@pytest.mark.parametrize("given", [{"port": -1}, {"port": 65_536}, {"port": "web"}, {"host": ""}])
def test_an_address_that_cannot_be_is_refused(given: dict[str, object], problems: Problems) -> None:
    """By name."""
    (line,) = problems(health=given)
    assert f"health.{next(iter(given))}" in line


def test_a_variable_can_turn_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the word null; without it, this machine alone is answered."""
    assert (load_settings(None).health.host, load_settings(None).health.port) == ("127.0.0.1", 8765)
    monkeypatch.setenv("CTXB_HEALTH__PORT", "null")
    assert load_settings(None).health.port is None


ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


TRACES = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://traces:4318/v1/traces"}


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        (ENDPOINT, True),
        (TRACES, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "false"}, True),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "console, otlp"}, True),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": ""}, True),
    ],
)
def test_auto_sends_where_an_endpoint_is_named(variables: dict[str, str], wanted: object) -> None:
    """Unless the environment switches all of it, or this exporter, off."""
    assert TelemetrySettings().exports(variables) is wanted


def test_the_setting_takes_precedence_over_an_endpoint() -> None:
    """None sends nothing, otlp without a word in the environment; but off is off."""
    assert not TelemetrySettings(traces="none").exports(ENDPOINT)
    assert TelemetrySettings(traces="otlp").exports({})
    assert not TelemetrySettings(traces="otlp").exports({"OTEL_SDK_DISABLED": "true"})


def test_the_endpoint_of_traces_takes_precedence_over_that_of_all() -> None:
    """And without any it is the one that the standard has."""
    assert otlp_endpoint({**ENDPOINT, **TRACES}) == "http://traces:4318/v1/traces"
    assert otlp_endpoint(ENDPOINT) == "http://collector:4318"
    assert otlp_endpoint({}) == "http://localhost:4318"


def test_only_one_protocol_is_spoken() -> None:
    """The one of traces counts before that of all."""
    every = "OTEL_EXPORTER_OTLP_PROTOCOL"
    assert unsupported_protocol({}) is None
    assert unsupported_protocol({every: "http/protobuf"}) is None
    assert unsupported_protocol({every: "grpc"}) == "grpc"
    of_traces = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}
    assert unsupported_protocol({every: "grpc", **of_traces}) is None
