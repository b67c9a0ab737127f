"""The settings of traces, and what the variables of OpenTelemetry say of them."""

import os
from collections.abc import Mapping
from typing import Final, Literal

from service.config.section import Section

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
EXPORTERS: Final = "OTEL_TRACES_EXPORTER"
DISABLED: Final = "OTEL_SDK_DISABLED"

#: What the exporter speaks, and to whom where no variable says so.
PROTOCOL: Final = "http/protobuf"
DEFAULT_ENDPOINT: Final = "http://localhost:4318"


class TelemetrySettings(Section):
    """Whether spans are sent; where to, and how many, say OpenTelemetry's own variables."""

    #: auto sends where the variables name an endpoint; otlp always, none never.
    traces: Literal["auto", "otlp", "none"] = "auto"

    def wanted(self, variables: Mapping[str, str] = os.environ) -> bool:
        """Tell whether spans are to be sent."""
        if self.traces == "none" or variables.get(DISABLED, "").strip().lower() == "true":
            return False
        if self.traces == "otlp":
            return True
        named = (variables.get(EXPORTERS) or "otlp").split(",")
        return _first(ENDPOINTS, variables) is not None and "otlp" in map(str.strip, named)


def endpoint(variables: Mapping[str, str] = os.environ) -> str:
    """Return where spans are sent."""
    return _first(ENDPOINTS, variables) or DEFAULT_ENDPOINT


def unspoken_protocol(variables: Mapping[str, str] = os.environ) -> str | None:
    """Return the protocol that the variables ask for, where it is another than ours."""
    asked = _first(PROTOCOLS, variables)
    return None if asked in (None, PROTOCOL) else asked


def _first(names: tuple[str, ...], variables: Mapping[str, str]) -> str | None:
    """Return the first of these that is set; an empty one is not."""
    return next((variables[name].strip() for name in names if variables.get(name)), None)
