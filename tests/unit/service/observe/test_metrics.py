"""What is timed, and the metrics of a process that nobody watches."""

import pytest

from service.observe.metrics import UNMEASURED, Sizes, timed
from tests.support import Noted

SIZES = Sizes(
    model="gpt-5", blocks=[], utilization=0, yielded=[], decisions=[], strategy="none", saved=0
)


def test_time_is_noted_however_it_ended() -> None:
    """Also where an error ends what is timed, which goes on."""
    noted = Noted()
    with timed(noted, "gather"):
        pass
    with pytest.raises(ValueError, match="broken"), timed(noted, "fit"):
        raise ValueError("broken")

    assert [call for call, seconds in noted.took_seconds] == ["gather", "fit"]
    assert all(seconds >= 0 for _, seconds in noted.took_seconds)


def test_unmeasured_takes_everything() -> None:
    """What happens in a process that nobody watches is of no consequence."""
    UNMEASURED.record_duration("send", 1)
    UNMEASURED.count("build_requests", "success")
    UNMEASURED.count("duplicates_suppressed", "stored")
    UNMEASURED.count("reply_dropped", "no_subscriber")
    UNMEASURED.count("dead_letters", "result")
    UNMEASURED.count("rows_not_stored", "input")
    UNMEASURED.count("events_lost")
    UNMEASURED.record_context(SIZES)
    UNMEASURED.count("summary_requests", "made")
    UNMEASURED.count("config_reloads", "failed")
    UNMEASURED.count("tool_refresh", "git", "changed")
    UNMEASURED.record_http_request("/v1/build", "POST", "2xx", 1)
