"""The basis of all sections of the settings: their base class, and the types of values."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Union, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)


def refuse_switch(value: object) -> object:
    """Raise `ValueError` for true in place of a number, which pydantic reads as 1; false is 0."""
    if value is True:
        message = "must be a number; YAML reads yes and on as true"
        raise ValueError(message)
    return value


class Section(BaseModel):
    """A group of settings; an empty one holds its defaults."""

    # defaults are validated too: a bound may depend on a value that was set
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def _read_null_as_empty(cls, value: object) -> object:
        # `bus:` with nothing below it is null in YAML
        return {} if value is None else value

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_switch(cls, value: object, info: ValidationInfo) -> object:
        kind = cls.model_fields[str(info.field_name)].annotation
        members = get_args(kind) if get_origin(kind) is Union else (kind,)
        kinds = {getattr(member, "__origin__", member) for member in members}
        return value if kinds.isdisjoint({int, float}) else refuse_switch(value)


#: The longest duration: a hundred years. Servers and clocks take no much longer ones.
LONGEST: Final = 36_500 * 86_400


def _check_seconds(value: float) -> float:
    # servers count in milliseconds
    if 0 < value < 0.001 or value > LONGEST:
        message = f"must be between 0.001 and {LONGEST}, a hundred years"
        raise ValueError(message)
    return value


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), AfterValidator(_check_seconds)]
#: Seconds, or 0.
SecondsOrZero = Annotated[float, Field(ge=0, allow_inf_nan=False), AfterValidator(_check_seconds)]


def _check_milliseconds(value: int) -> int:
    if value > LONGEST * 1000:
        message = f"must be at most {LONGEST * 1000}, a hundred years"
        raise ValueError(message)
    return value


Milliseconds = Annotated[int, Field(ge=1), AfterValidator(_check_milliseconds)]
Count = Annotated[int, Field(ge=1)]
Factor = Annotated[float, Field(ge=1, allow_inf_nan=False), BeforeValidator(refuse_switch)]
Text = Annotated[str, Field(min_length=1)]
#: A share, from nothing to all.
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
#: A TCP port; 0 is any free one.
Port = Annotated[int, Field(ge=0, le=65_535)]
Days = Annotated[float, Field(gt=0, le=36_500, allow_inf_nan=False)]


def _check_web_url(value: SecretStr) -> SecretStr:
    url = urlsplit(value.get_secret_value())
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise ValueError("must begin with http:// or https:// and name a host")
    return value


#: The URL of an HTTP server; secret, since it may hold a password.
WebUrl = Annotated[SecretStr, AfterValidator(_check_web_url)]


def _parse_strategy(value: object) -> object:
    if isinstance(value, str) and value[:1] in ("{", "["):  # a variable's, which is JSON
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"must be a name, or JSON: {error}") from error
    if isinstance(value, str | Mapping | list) and value:
        return value
    raise ValueError("must be a name, a name with parameters, or a list of these")


#: A strategy as requests write it; `service.build.plugins` checks that it exists.
StrategySpec = Annotated[Any, BeforeValidator(_parse_strategy)]
