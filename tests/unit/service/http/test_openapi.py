"""The description of the routes; that answers fit it is tested on answers."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def test_summaries_do_not_need_docstrings() -> None:
    """Under ``python -OO`` every operation has the same summary."""
    script = "import json; from service.http.openapi import document\n"
    script += "from service.http.routes import ENDPOINTS; print(json.dumps(document(ENDPOINTS)))"
    ran = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-OO", "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )

    def summaries(described: dict[str, Any]) -> list[str]:
        methods = [method for path in described["paths"].values() for method in path.values()]
        return [method["summary"] for method in methods]

    assert summaries(json.loads(ran.stdout)) == summaries(document(ENDPOINTS))
    assert all(summaries(document(ENDPOINTS)))
