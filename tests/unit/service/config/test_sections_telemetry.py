"""Whether spans are sent, by the settings and by the variables that other programs know too."""

import pytest

from service.config.sections import TelemetrySettings, endpoint, unspoken_protocol

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
    assert TelemetrySettings().wanted(variables) is wanted


def test_the_setting_goes_before_an_endpoint() -> None:
    """None sends nothing, otlp without a word in the environment; but off is off."""
    assert not TelemetrySettings(traces="none").wanted(ENDPOINT)
    assert TelemetrySettings(traces="otlp").wanted({})
    assert not TelemetrySettings(traces="otlp").wanted({"OTEL_SDK_DISABLED": "true"})


def test_the_endpoint_of_traces_goes_before_that_of_all() -> None:
    """And without any it is the one that the standard has."""
    assert endpoint({**ENDPOINT, **TRACES}) == "http://traces:4318/v1/traces"
    assert endpoint(ENDPOINT) == "http://collector:4318"
    assert endpoint({}) == "http://localhost:4318"


def test_only_one_protocol_is_spoken() -> None:
    """The one of traces counts before that of all."""
    every = "OTEL_EXPORTER_OTLP_PROTOCOL"
    assert unspoken_protocol({}) is None
    assert unspoken_protocol({every: "http/protobuf"}) is None
    assert unspoken_protocol({every: "grpc"}) == "grpc"
    of_traces = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}
    assert unspoken_protocol({every: "grpc", **of_traces}) is None
