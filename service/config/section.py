"""What every group of settings is made of."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Factor = Annotated[float, Field(ge=1, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
#: A share of something, from nothing to all of it.
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


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
