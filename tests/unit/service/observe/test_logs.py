"""What logs show, and what they must not."""

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest
import structlog
from pydantic import SecretStr

from service.observe.logs import configure_logging, keep_to_stderr, owner_hash
from service.observe.tracing import (
    active_span,
    log_ignored_header,
    remote_context,
    with_caller_trace,
)
from tests.support import logging_put_back
from tests.tracing import Collected


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    with logging_put_back():
        yield
    structlog.contextvars.clear_contextvars()


class Terminal(io.StringIO):
    """A stderr that is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


#: The text of a user.
WISH = "my secret wish"


def _fail(wish: str) -> None:
    raise OSError(f"no answer from redis://u:hunter2@db to {len(wish)} characters")


def _events(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    captured = capsys.readouterr()
    assert not captured.out
    return [json.loads(line) for line in captured.err.splitlines()]


def test_events_are_lines_of_json_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """An event is one line of JSON on stderr with level, logger and UTC time."""
    configure_logging(format="json")
    structlog.get_logger("service.builder").info("context.built", tokens=12, blocks={"RUN": 3})
    (event,) = _events(capsys)
    assert str(event.pop("timestamp")).endswith("Z")
    assert event == {
        "event": "context.built",
        "level": "info",
        "logger": "service.builder",
        "tokens": 12,
        "blocks": {"RUN": 3},
    }


def test_loggers_of_libraries_go_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    """A library's record is rendered, and redacted, as our own events are."""
    configure_logging(format="json")
    library = logging.getLogger("redis.connection")
    library.warning(
        "lost %s", "redis://u:hunter2@db:6379", extra={"text": "hi", "password": "hunter2"}
    )
    (event,) = _events(capsys)
    assert event["event"] == "lost redis://u:***@db:6379"
    assert (event["level"], event["logger"]) == ("warning", "redis.connection")
    assert event["password"] == "***"
    assert "text" not in event


@pytest.mark.parametrize("level", ["warning", "WARNING"])
def test_lower_levels_are_left_out(level: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing below the level is shown, ours or a library's."""
    configure_logging(level=level, format="json")
    structlog.get_logger().info("ours")
    logging.getLogger("library").info("theirs")
    structlog.get_logger().error("shown")
    assert [event["event"] for event in _events(capsys)] == ["shown"]


def test_context_is_merged(capsys: pytest.CaptureFixture[str]) -> None:
    """What is bound to the task is in every event, redacted; the event's own fields win."""
    configure_logging(format="json")
    structlog.contextvars.bind_contextvars(run_id="run_1", owner_key="0xABC", step="a")
    structlog.get_logger().info("x", step="b")
    logging.getLogger("library").info("y")
    ours, theirs = _events(capsys)
    assert (ours["run_id"], ours["step"]) == ("run_1", "b")
    assert theirs["owner"] == ours["owner"] == owner_hash("0xABC")
    assert "owner_key" not in {*ours, *theirs}


def test_owners_are_hashed(capsys: pytest.CaptureFixture[str]) -> None:
    """An owner key never is in a log, only the beginning of its SHA-256."""
    configure_logging(format="json")
    structlog.get_logger().info("x", owner_key="0xABC", nested=[{"owner_key": "\ud800"}])
    (event,) = _events(capsys)
    assert event["owner"] == "ee9fdfc467e9"
    assert event["nested"] == [{"owner": owner_hash("\ud800")}]


@pytest.mark.parametrize("field", ["content", "text", "payload", "messages", "input"])
def test_words_are_dropped(field: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Fields that hold people's words are left out, however deep they are."""
    configure_logging(format="json")
    structlog.get_logger().info("x", **{field: "my secret wish", "row": [{field: "wish", "n": 1}]})
    (event,) = _events(capsys)
    assert field not in event
    assert event["row"] == [{"n": 1}]


def test_words_are_shown_where_requested(capsys: pytest.CaptureFixture[str]) -> None:
    """With content on, people's words are logged; secrets still aren't."""
    configure_logging(format="json", content=True)
    structlog.get_logger().info("x", text="hi", token="abc", owner_key="0xABC")
    (event,) = _events(capsys)
    assert (event["text"], event["token"]) == ("hi", "***")
    assert "0xABC" not in str(event)


@pytest.mark.parametrize(
    "field",
    [
        *("password", "db_password", "PGPASSWORD", "client_secret", "accessToken", "api_key"),
        *("api-key", "Authorization", "cookie", "private_key", "credentials"),
    ],
)
def test_secrets_are_masked(field: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Fields that are named like secrets are masked."""
    configure_logging(format="json")
    structlog.get_logger().info("x", **{field: "hunter2"})
    assert _events(capsys)[0][field] == "***"


@pytest.mark.parametrize("field", ["tokens", "max_tokens", "tokenizer", "key", "token_count"])
def test_counts_are_no_secrets(field: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Fields that speak of tokens as a measure are shown."""
    configure_logging(format="json")
    structlog.get_logger().info("x", **{field: 7})
    assert _events(capsys)[0][field] == 7


def test_passwords_in_urls_are_masked(capsys: pytest.CaptureFixture[str]) -> None:
    """A URL shows where it leads, not its password: in fields, errors and other objects."""
    configure_logging(format="json")
    url = "postgresql://bob:p@ss/word@db/main?token=abc&x=1"
    structlog.get_logger().info(
        f"at {url}", url=url, error=OSError(url), more=(url,), secretive=SecretStr(url)
    )
    (event,) = _events(capsys)
    masked = "postgresql://bob:***@db/main?token=***&x=1"
    assert event["event"] == f"at {masked}"
    assert (event["url"], event["error"], event["more"]) == (masked, masked, [masked])
    assert "db/main" not in str(event["secretive"])


def test_errors_show_their_trace_without_locals(capsys: pytest.CaptureFixture[str]) -> None:
    """An exception is logged with its trace, but neither local variables nor passwords."""
    configure_logging(format="json")
    try:
        _fail(wish=WISH)
    except OSError:
        structlog.get_logger().exception("failed")
        logging.getLogger("library").exception("failed")
    events = _events(capsys)
    assert len(events) == 2
    for event in events:
        assert "OSError: no answer from redis://u:***@db" in str(event["exception"])
        assert WISH not in str(event)


def test_a_terminal_gets_the_console_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """The format auto is for people where stderr is a terminal; it hides the same."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    configure_logging()
    try:
        _fail(wish=WISH)
    except OSError:
        structlog.get_logger().exception("context.failed", text=WISH)
    assert isinstance(sys.stderr, Terminal)
    shown = sys.stderr.getvalue()
    assert "context.failed" in shown
    assert "Traceback" in shown
    assert not shown.startswith("{")
    assert WISH not in shown


def test_no_terminal_gets_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The format auto is JSON where stderr is no terminal."""
    configure_logging()
    structlog.get_logger().info("x")
    assert _events(capsys)[0]["event"] == "x"


def test_console_can_be_forced(capsys: pytest.CaptureFixture[str]) -> None:
    """The console format is given where it is requested, without colours in a file."""
    configure_logging(format="console")
    structlog.get_logger().info("context.built", tokens=3)
    shown = capsys.readouterr().err
    assert "tokens=3" in shown
    assert "\x1b" not in shown


def test_configuring_again_replaces(capsys: pytest.CaptureFixture[str]) -> None:
    """A second configuration takes the first one's place, for loggers in use as well."""
    log = structlog.get_logger()
    configure_logging(format="json")
    log.debug("hidden")
    configure_logging(level="debug", format="json")
    log.debug("shown")
    assert [event["event"] for event in _events(capsys)] == ["shown"]


def test_a_program_without_logs_of_its_own_has_a_clean_stdout(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Warnings go to stderr, without secrets; what is no news isn't said at all."""
    structlog.reset_defaults()
    keep_to_stderr()
    log = structlog.get_logger()
    log.info("summary.made")
    log.warning("summary.failed", owner_key="ana", api_key="k")

    (event,) = _events(capsys)
    assert event["event"] == "summary.failed"
    assert event["owner"] == owner_hash("ana")
    assert event["api_key"] == "***"


def test_a_program_with_logs_of_its_own_keeps_them(capsys: pytest.CaptureFixture[str]) -> None:
    """An application that has configured structlog keeps its configuration."""
    configure_logging("info", "json")
    keep_to_stderr()
    structlog.get_logger().info("summary.made")

    assert [event["event"] for event in _events(capsys)] == ["summary.made"]


def test_lines_that_nobody_takes_stop_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where stderr is closed, or its reader is gone, logging raises nothing."""

    class Gone(io.StringIO):
        """A pipe without a reader."""

        def write(self, text: str) -> int:
            """Fail."""
            raise BrokenPipeError

    closed = io.StringIO()
    for stream in (Gone(), closed):
        monkeypatch.setattr(sys, "stderr", stream)
        configure_logging(format="json")
        if stream is closed:
            closed.close()
        structlog.get_logger().error("x")


@pytest.mark.parametrize(
    "value",
    [
        "Gruß 🙂",
        "\x7f\x9b31m\u202e",
        "\ud800",
        2**70,
        -(2**64),
        ["\ud800", {"n": 10**30}],
        0.5,
        None,
    ],
)
def test_whatever_is_logged_is_a_line_of_ascii(
    value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """No character can harm a terminal, and no value keeps a line from being written."""
    configure_logging(format="json")
    structlog.get_logger().info("x", value=value)
    line = capsys.readouterr().err
    assert line.isascii()
    assert line.rstrip("\n").isprintable()
    assert json.loads(line)["value"] == value


def test_a_line_names_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    """That of our span, or the caller's; libraries' lines do too, and others name none."""
    configure_logging(format="json")
    collected = Collected()
    log = structlog.get_logger("service.builder")
    with active_span(collected.tracer, "x"):
        log.info("context.built")
        logging.getLogger("redis").warning("reconnected")
    trace_id, span_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with with_caller_trace(f"00-{trace_id}-{span_id}-01"):
        log.info("context.built")
    log.info("worker.stopped")
    ours, foreign, callers, none = _events(capsys)

    found = collected.ids(collected.named("x"))
    assert (ours["trace_id"], ours["span_id"]) == found
    assert (foreign["trace_id"], foreign["span_id"]) == found
    assert (callers["trace_id"], callers["span_id"]) == (trace_id, span_id)
    assert "trace_id" not in none


def test_what_callers_call_their_trace_is_not_quoted(capsys: pytest.CaptureFixture[str]) -> None:
    """An unreadable value is logged once, without it; the library would quote it."""
    log_ignored_header.cache_clear()
    configure_logging(format="json")
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for state in (f"{WISH}=1", f"a={WISH},a={WISH}\x7f", "a=1," * 300):
        remote_context(caller, state)

    (reported,) = _events(capsys)
    assert (reported["event"], reported["key"]) == ("trace.ignored", "tracestate")
    assert WISH not in str(reported)
