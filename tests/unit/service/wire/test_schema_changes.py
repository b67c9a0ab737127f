"""Today's schemas against those of version 1.0: only changes that a minor version may make."""

import json
from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from service.wire.documents import schemas

FROZEN = Path(__file__).parents[4] / "tests" / "golden" / "v1.0" / "schemas"
#: The schemas as they are now, which take a while to make.
today = cache(schemas)

#: The messages that callers send, and those that they read.
SENT = ("request", "result_row")
READ = ("response", "context_pruned", "context_summarized", "context_compacted")

#: Where a smaller number lets more through, and where a larger one does.
LEAST = ("minLength", "minItems", "minimum", "exclusiveMinimum")
MOST = ("maxLength", "maxItems", "maximum", "maxProperties")


@dataclass
class Place:
    """What a schema says of the values at one place, over all of its alternatives."""

    types: set[str] = field(default_factory=set)
    values: set[str] = field(default_factory=set)
    bounds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    required: bool = True


Places = dict[str, Place]


def places(schema: dict[str, Any]) -> Places:
    """Return what a schema says, by place; members of a list share theirs."""
    found: Places = {}
    for place, each, required in walked(schema, schema, "", required=True):
        here = found.setdefault(place, Place())
        here.types |= set(as_list(each.get("type", "any")))
        here.values |= {json.dumps(value) for value in each.get("enum", [])}
        here.values |= {json.dumps(each["const"])} if "const" in each else set()
        here.required &= required
        for bound in {*LEAST, *MOST} & set(each):
            here.bounds[bound].append(each[bound])
    return found


def as_list(types: str | list[str]) -> list[str]:
    """Return a type, or several, as a list."""
    return [types] if isinstance(types, str) else types


def walked(
    whole: dict[str, Any], schema: dict[str, Any], place: str, *, required: bool
) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield every schema of a value, with its path and whether it is required."""
    if "$ref" in schema:
        target = whole["$defs"][schema["$ref"].removeprefix("#/$defs/")]
        yield from walked(whole, target, place, required=required)
        return
    alternatives = [*schema.get("anyOf", []), *schema.get("oneOf", [])]
    for each in alternatives:
        yield from walked(whole, each, place, required=required)
    if not alternatives:
        yield place, schema, required
    for key, each in schema.get("properties", {}).items():
        needed = key in schema.get("required", [])
        yield from walked(whole, each, f"{place}/{key}", required=needed)
    if isinstance(schema.get("items"), dict):
        yield from walked(whole, schema["items"], f"{place}/*", required=False)


def refused(old: Places, new: Places) -> list[str]:
    """Return what a sender of the old form would run into today."""
    reported = [f"{place} is gone" for place in old.keys() - new.keys()]
    reported += [
        f"{place} is required"
        for place, now in new.items()
        if now.required and not (place in old and old[place].required)
    ]
    for place in old.keys() & new.keys():
        was, now = old[place], new[place]
        if "any" not in now.types and not was.types <= now.types:
            reported.append(f"{place} takes fewer types")
        if now.values and not (was.values and was.values <= now.values):
            reported.append(f"{place} takes fewer values")
        reported += [f"{place}: {bound} is tighter" for bound in tighter(was, now)]
    return reported


def tighter(was: Place, now: Place) -> Iterator[str]:
    """Yield the bounds that let less through than they did."""
    for bound, limits in now.bounds.items():
        before = was.bounds.get(bound)
        if before is None or (
            max(limits) < max(before) if bound in MOST else min(limits) > min(before)
        ):
            yield bound


def surprised(old: Places, new: Places) -> list[str]:
    """Return what a reader of the old form would stumble over today; new codes it has to bear."""
    reported = [f"{place} is gone" for place in old.keys() - new.keys()]
    for place in old.keys() & new.keys():
        was, now = old[place], new[place]
        if was.required and not now.required:
            reported.append(f"{place} may be missing")
        if "any" not in was.types and not now.types <= was.types:
            reported.append(f"{place} has other types")
    return reported


def frozen(name: str) -> dict[str, Any]:
    """Return a schema as it was."""
    found: dict[str, Any] = json.loads((FROZEN / f"{name}.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", SENT)
def test_what_could_be_sent_can_be_sent(name: str) -> None:
    """No key has gone, become required, or takes less than it did."""
    assert refused(places(frozen(name)), places(today()[name])) == []


@pytest.mark.parametrize("name", READ)
def test_what_was_read_can_be_read(name: str) -> None:
    """No key has gone, may be missing now, or has another type."""
    assert surprised(places(frozen(name)), places(today()[name])) == []


def test_the_comparison_reaches_everything() -> None:
    """Into references, alternatives and lists."""
    request = places(frozen("request"))

    assert "/content/metadata/context/max_tokens" in request
    assert "/content/context/context_management/edits/*/type" in request
    assert "/content/usage/blocks" in places(frozen("response"))
    assert {name for name, place in request.items() if place.required} >= {"/owner_key"}


@pytest.mark.parametrize(
    ("key", "change", "reported"),
    [
        ("role", None, "/role is gone"),
        ("owner_key", {"type": "string", "maxLength": 5}, "/owner_key: maxLength is tighter"),
        ("owner_key", {"type": "integer"}, "/owner_key takes fewer types"),
        ("role", {"type": "string", "enum": ["SYSTEM"]}, "/role takes fewer values"),
        ("run_id", {"type": "string", "minLength": 2}, "/run_id: minLength is tighter"),
    ],
)
def test_a_breaking_change_of_a_request_is_noticed(
    key: str, change: dict[str, Any] | None, reported: str
) -> None:
    """Each kind of it, and it is named."""
    changed = deepcopy(frozen("request"))
    del changed["properties"][key]
    if change is not None:
        changed["properties"][key] = change

    assert reported in refused(places(frozen("request")), places(changed))


def test_a_key_that_becomes_required_is_noticed() -> None:
    """Also one that there wasn't."""
    changed = deepcopy(frozen("request"))
    changed["required"].append("run_id")
    changed["properties"]["mood"] = {"type": "string"}
    changed["required"].append("mood")

    reported = refused(places(frozen("request")), places(changed))
    assert sorted(reported) == ["/mood is required", "/run_id is required"]


def test_a_breaking_change_of_a_response_is_noticed() -> None:
    """A key that goes, one that may be missing, and one of another type."""
    changed = deepcopy(frozen("response"))
    del changed["properties"]["role"]
    changed["properties"]["id"] = {"type": "integer"}
    changed["required"].remove("timestamp")

    reported = surprised(places(frozen("response")), places(changed))
    assert sorted(reported) == ["/id has other types", "/role is gone", "/timestamp may be missing"]


def test_what_a_minor_version_may_do_is_no_change() -> None:
    """New keys, wider bounds and new values are not reported."""
    request, response = deepcopy(frozen("request")), deepcopy(frozen("response"))
    request["properties"]["mood"] = {"type": "string"}
    request["properties"]["owner_key"]["maxLength"] = 1000
    response["properties"]["mood"] = {"type": "string"}
    response["required"].append("mood")

    assert refused(places(frozen("request")), places(request)) == []
    assert surprised(places(frozen("response")), places(response)) == []
