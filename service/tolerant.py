"""Models that read null as absent, as senders in many languages write it."""

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, model_validator

#: Keys whose null says something: no tools, and no limit of rows.
MEANING_NULLS: Final = frozenset({"tools", "memory_limit"})


class Tolerant(BaseModel):
    """A part of a request in which a key that is null has its default."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:  # noqa: ANN401 - whatever was sent
        if not isinstance(data, dict) or None not in data.values():
            return data
        return {k: v for k, v in data.items() if v is not None or k in MEANING_NULLS}
