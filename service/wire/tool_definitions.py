"""Check that a tool is an OpenAI function definition that can be written as JSON."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from service.errors import Problem, ToolError, escape_key, shown

#: Also dots, which OpenAI refuses: a tool is offered under the name that `formatters.names` makes.
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def check_definition(definition: object, where: str) -> None:
    """Check a definition; ``where`` names its location in the error.

    Raises:
        ToolError: It is invalid; has all problems, with pointers relative to the definition.
    """
    problems = list(_problems(definition)) or list(_json_problems(definition))
    if problems:
        causes = "; ".join(f"{problem.pointer} {problem.detail}".strip() for problem in problems)
        raise ToolError(f"{where}: {causes}", problems)


def tool_name(definition: Mapping[str, object]) -> str:
    """Return the name of a tool; an empty one if the definition is invalid."""
    function = definition.get("function")
    return str(function.get("name")) if isinstance(function, Mapping) else ""


def _problems(definition: object) -> Iterator[Problem]:
    if not isinstance(definition, Mapping):
        yield Problem("", f"must be an object, not {type(definition).__name__}")
        return
    if definition.get("type") != "function":
        form = 'a tool has the form {"type": "function", "function": {"name": …, "parameters": …}}'
        yield Problem("/type", f'must be "function"; {form}')
    function = definition.get("function")
    if not isinstance(function, Mapping):
        yield Problem("/function", "must be an object")
        return
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield Problem("/function/name", "must be 1 to 64 letters, digits, _, . or -")
    if not isinstance(function.get("description", ""), str):
        yield Problem("/function/description", "must be a string")
    if "parameters" in function:
        yield from _parameter_problems(function["parameters"], "/function/parameters")


def _parameter_problems(parameters: object, pointer: str) -> Iterator[Problem]:
    if not isinstance(parameters, Mapping):
        yield Problem(pointer, "must be a JSON schema object")
        return
    if parameters.get("type") != "object":
        yield Problem(f"{pointer}/type", 'must be "object"')
    properties = parameters.get("properties", {})
    if not isinstance(properties, Mapping):
        yield Problem(f"{pointer}/properties", "must be an object")
        return
    for name, schema in properties.items():
        if not isinstance(name, str):
            yield Problem(f"{pointer}/properties", f"the name {shown(name)} must be a string")
        elif not isinstance(schema, Mapping):
            yield Problem(f"{pointer}/properties/{escape_key(name)}", "must be an object")
    yield from _required_problems(parameters.get("required", []), properties, pointer)


def _required_problems(
    required: object, properties: Mapping[str, object], pointer: str
) -> Iterator[Problem]:
    if not isinstance(required, list | tuple):
        yield Problem(f"{pointer}/required", "must be a list of property names")
        return
    for index, name in enumerate(required):
        if not isinstance(name, str):
            yield Problem(f"{pointer}/required/{index}", "must be a string")
        elif name not in properties:
            yield Problem(f"{pointer}/required/{index}", f"{shown(name)} is not a property")


def _json_problems(definition: object) -> Iterator[Problem]:
    try:
        json.dumps(definition, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        yield Problem("", f"cannot be written as JSON: {error}")
