"""Ask the HTTP pages of a worker, as a probe or a collector does."""

import asyncio
import json
from collections import defaultdict
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from prometheus_client.parser import text_string_to_metric_families

#: A machine may send what it asks through a proxy, which does not reach our own addresses.
_DIRECT = build_opener(ProxyHandler({}))


async def asked(url: str) -> tuple[int, Any]:
    """Return the status of a page and what it says."""
    status, body = await asyncio.to_thread(_get, url)
    return status, json.loads(body)


async def measured(address: str) -> "Measured":
    """Return the metrics of a worker."""
    status, body = await asyncio.to_thread(_get, f"{address}/metrics")
    assert status == 200
    return Measured(body)


class Measured:
    """Metrics as they were at one moment."""

    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))
        self._values: defaultdict[tuple[str, tuple[str, ...]], float] = defaultdict(float)
        for family in self.families:
            for sample in family.samples:
                self._values[sample.name, tuple(sample.labels.values())] = sample.value

    def __call__(self, name: str, *labels: str) -> float:
        """Return a value, by the name behind our own and the values of its labels."""
        return self._values[f"contextbuilder_{name}", labels]

    @property
    def names(self) -> set[str]:
        """Return the names of all samples."""
        return {sample.name for family in self.families for sample in family.samples}


def _get(url: str) -> tuple[int, str]:
    try:
        with _DIRECT.open(url, timeout=60) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()
