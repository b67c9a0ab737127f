"""The schemas of messages as they are published now."""

from functools import cache

from jsonschema import Draft202012Validator

from service.wire.documents import schemas


@cache
def published(name: str) -> Draft202012Validator:
    """Return what checks messages against a schema; to make it takes a while."""
    return Draft202012Validator(schemas()[name])
