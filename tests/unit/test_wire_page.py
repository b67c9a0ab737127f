"""The tables of requests in `docs/wire.md` say of each key what the models say of it."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from scripts.reference.types import Schema, describe_type
from service.budget.strategies import STRATEGIES
from service.build.account import CANONICAL
from service.build.plan import make_plan
from service.config.settings import Settings
from service.wire.documents import schemas
from service.wire.request import BuildRequest

PAGE = (Path(__file__).parents[2] / "docs/wire.md").read_text(encoding="utf-8")
SCHEMA = schemas()["request"]
OBJECTS: Mapping[str, Schema] = SCHEMA["$defs"]

#: A key's type and default, and whether it has to be there.
Key = tuple[Schema, bool]


def keys_of(schema: Schema, path: str = "") -> dict[str, Key]:
    """Return every key below an object by its path; of a list, those of its first element."""
    found: dict[str, Key] = {}
    for name, kind in schema["properties"].items():
        found[path + name] = kind, name in schema.get("required", ())
        inner, mark = (kind["items"], "[0]") if "items" in kind else (kind, "")
        if "$ref" in inner:
            below = OBJECTS[inner["$ref"].rpartition("/")[2]]
            found |= keys_of(below, f"{path}{name}{mark}.")
    return found


def without(known: dict[str, Key], *places: str) -> dict[str, Key]:
    """Leave out keys that another table has."""
    return {name: key for name, key in known.items() if not name.startswith(places)}


ENVELOPE = without(keys_of(SCHEMA), "metadata.")
METADATA = keys_of(OBJECTS["RequestMetadata"])
OPTIONS = keys_of(OBJECTS["ContextOptions"])
SHORT = without(keys_of(OBJECTS["ShortContent"]), "context.")
RUN = without(keys_of(OBJECTS["Run"]), "metadata.context.")
del RUN["metadata"]  # the table has what stands in it

#: How each table begins, and the keys of each of its first columns.
TABLES = {
    "| Key | Type | Default | Effect |\n| --- | --- | --- | --- |\n| `schema_version`": [ENVELOPE],
    "| Key of `metadata` |": [METADATA],
    "| Short form | Run |": [SHORT, RUN],
    "| Key | Type | Default | Effect |\n| --- | --- | --- | --- |\n| `model`": [OPTIONS],
}


def settled() -> Mapping[str, object]:
    """Return what a build does where the request says nothing and no setting is asked."""
    least = {"id": "m", "owner_key": "ana", "conversation_id": "c"}
    request = BuildRequest.model_validate(least | {"content": {"current_input": "Hello"}})
    at = datetime(2025, 12, 10, tzinfo=UTC)
    plan = make_plan(request, Settings(), STRATEGIES, {}, at)
    return {
        "tools": request.run.tools,
        "layout": plan.layout,
        "explain": plan.explain,
        "scope": "conversation" if plan.conversation_id else "owner",
        "format": CANONICAL,
    }


def rows(head: str) -> list[list[str]]:
    """Return the cells of a table, a list a row."""
    table = PAGE[PAGE.index(head) :].split("\n\n", 1)[0]
    return [re.split(r" ?\| ?", line)[1:-1] for line in table.splitlines()[2:]]


def named(cell: str) -> list[str]:
    """Return the code spans of a cell."""
    return re.findall(r"`([^`]+)`", cell)


def type_of(schema: Schema) -> str:
    """Return a key's type as the page has it, on which null is read as absent."""
    words = re.sub(r",? or null$", "", describe_type(schema, lambda _: "object"))
    return words.replace("object or object", "object")


@pytest.mark.parametrize("head", TABLES, ids=["envelope", "metadata", "content", "options"])
def test_the_tables_have_every_key_and_no_other(head: str) -> None:
    """Each once, in the column of its form."""
    for column, known in enumerate(TABLES[head]):
        told = [name for row in rows(head) for name in named(row[column])]
        assert sorted(told) == sorted(known)


@pytest.mark.parametrize("head", TABLES, ids=["envelope", "metadata", "content", "options"])
def test_the_tables_have_the_types_and_defaults_of_the_models(head: str) -> None:
    """A type as `docs/messages.md` has it, a default in JSON, or in words where null stands."""
    columns, made = TABLES[head], settled()
    for row in rows(head):
        kind, default = row[len(columns) : len(columns) + 2]
        found = [
            (name, *known[name])
            for known, cell in zip(columns, row, strict=False)
            for name in named(cell)
        ]
        required = any(needed for *_, needed in found)
        assert (default == "required") == required, row
        for name, schema, _ in found:
            assert type_of(schema) in {kind, "anything"}, name
            assert required or stated(default) == made.get(name, plain(schema)), name


def stated(cell: str) -> object:
    """Return the default in a cell; None also where it is told in words."""
    with suppress(json.JSONDecodeError):
        return json.loads(cell.strip("`"))
    return None


def plain(schema: Schema) -> object:
    """Return a key's default, and of an object none of its keys' own."""
    default = schema.get("default")
    return {} if isinstance(default, dict) else default
