"""Check that a tool is an OpenAI function definition that can be written as JSON."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, Field, ValidationError, ValidationInfo

from service.errors import Problem, ToolError, shown
from service.wire.validation import invalid

#: What is said of a tool in another form.
_FORM: Final = 'a tool has the form {"type": "function", "function": {"name": …, "parameters": …}}'


def _is_property(name: str, info: ValidationInfo) -> str:
    if name not in info.data.get("properties", (name,)):
        raise ValueError(f"{shown(name)} is not a property")
    return name


class _Parameters(BaseModel):
    type: Literal["object"]
    properties: dict[str, Mapping[Any, Any]] = {}
    required: list[Annotated[str, AfterValidator(_is_property)]] = []


class _Function(BaseModel):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    description: str = ""
    parameters: _Parameters = _Parameters(type="object")


class _Definition(BaseModel):
    type: Literal["function"]
    function: _Function


def check_definition(definition: object, where: str) -> None:
    """Check a definition; ``where`` names its location in the error.

    Raises:
        ToolError: It is invalid; has all problems, with pointers relative to the definition.
    """
    try:
        _Definition.model_validate(definition)
        json.dumps(definition, allow_nan=False, ensure_ascii=False).encode()
    except ValidationError as error:
        problems = invalid(error).problems
        causes = "; ".join(f"{problem.pointer} {problem.detail}".strip() for problem in problems)
        if problems[0].pointer in ("/type", "/function"):
            causes += f"; {_FORM}"
        raise ToolError(f"{where}: {causes}", problems) from error
    except (TypeError, ValueError, RecursionError) as error:
        problem = Problem("", f"cannot be written as JSON: {error}")
        raise ToolError(f"{where}: {problem.detail}", [problem]) from error


def tool_name(definition: Mapping[str, object]) -> str:
    """Return the name of a tool; an empty one if the definition is invalid."""
    function = definition.get("function")
    return str(function.get("name")) if isinstance(function, Mapping) else ""
