"""Generate the files that describe the wire and the HTTP interface: ``docs/schemas``."""

import json
import sys
from pathlib import Path
from typing import Any

from service.wire.documents import asyncapi_document, error_registry, schemas


def documents() -> dict[str, str]:
    """Return the text of each file, by its path in the documents' folder."""
    # imports a web server, which commands that print the others don't need
    from service.http import openapi  # noqa: PLC0415
    from service.http.routes import ENDPOINTS  # noqa: PLC0415

    described = {
        **schemas(),
        "asyncapi": asyncapi_document(),
        "openapi": openapi.document(ENDPOINTS),
        "errors": error_registry(),
    }
    return {f"schemas/{name}.json": as_text(document) for name, document in described.items()}


def as_text(document: dict[str, Any]) -> str:
    """Return the text of a JSON document."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def write(folder: Path) -> None:
    """Write every file into a folder."""
    for name, text in documents().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
