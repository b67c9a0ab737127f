"""The JSON Schemas of the wire contract, and the command that writes them into a folder."""

import json
import sys
from pathlib import Path
from typing import Any

from service.event import Compacted, Event, Pruned, Summarized
from service.result_row import ResultRow
from service.wire import BuildRequest, BuildResponse

#: What a sender may leave out although the model has it: it is derived on receipt.
DERIVED = ("id", "run_id")


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of each message, by the name of its file."""
    request = BuildRequest.model_json_schema(mode="validation")
    request["required"] = [name for name in request["required"] if name not in DERIVED]
    return {
        "request": request,
        "response": BuildResponse.model_json_schema(mode="serialization"),
        "context_pruned": Event[Pruned].model_json_schema(mode="serialization"),
        "context_summarized": Event[Summarized].model_json_schema(mode="serialization"),
        "context_compacted": Event[Compacted].model_json_schema(mode="serialization"),
        "result_row": ResultRow.model_json_schema(mode="validation"),
    }


def as_text(schema: dict[str, Any]) -> str:
    """Return a schema as it stands in its file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main(folder: Path) -> None:
    """Write every schema into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in schemas().items():
        (folder / f"{name}.json").write_text(as_text(schema), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
