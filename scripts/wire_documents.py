"""The files that describe the wire and the HTTP interface, all of them generated."""

import json
import sys
from pathlib import Path
from typing import Any

from service.wire import documents as asyncapi
from service.wire.documents import page, registry, schemas


def documents() -> dict[str, str]:
    """Return the text of each file, by its path below the documents' folder."""
    # a web server's library, which commands that print the others can do without
    from service.http import openapi  # noqa: PLC0415
    from service.http.routes import ENDPOINTS  # noqa: PLC0415

    described = {
        **schemas(),
        "asyncapi": asyncapi.document(),
        "openapi": openapi.document(ENDPOINTS),
        "errors": registry(),
    }
    return {
        **{f"schemas/{name}.json": as_text(each) for name, each in described.items()},
        "errors.md": page(),
    }


def as_text(described: dict[str, Any]) -> str:
    """Return a JSON document as it stands in its file."""
    return json.dumps(described, indent=2, ensure_ascii=False) + "\n"


def write(folder: Path) -> None:
    """Write every file into a folder."""
    for name, text in documents().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
