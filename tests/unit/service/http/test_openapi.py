"""The description of the routes; that answers fit it is tested on answers."""

import json
import re
from pathlib import Path

from service.http.openapi import document
from service.http.routes import ENDPOINTS

ROOT = Path(__file__).parents[4]


def test_everything_that_is_referred_to_is_there() -> None:
    """And nothing else is."""
    described = document(ENDPOINTS)
    referred = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(described))
    assert set(referred) == set(described["components"]["schemas"])


def test_every_route_is_described_once() -> None:
    """Under a name of its own, with all parts of its path."""
    described = document(ENDPOINTS)
    operations = [
        (path, operation)
        for path, methods in described["paths"].items()
        for operation in methods.values()
    ]
    assert len({operation["operationId"] for _, operation in operations}) == len(ENDPOINTS)
    for path, operation in operations:
        parts = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert parts == set(re.findall(r"{(\w+)}", path))


def test_a_request_for_a_context_needs_no_ids() -> None:
    """They are derived, as on the bus."""
    request = document(ENDPOINTS)["components"]["schemas"]["BuildRequest"]
    assert set(request["required"]) == {"owner_key", "content"}
