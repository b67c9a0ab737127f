"""The column type of the keys of terms."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, Dialect, Text, TypeDecorator
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import TypeEngine

#: What makes a number of 64 bits unsigned.
_ALL_BITS: Final = 2**64 - 1


class Keys(TypeDecorator[Sequence[int]]):
    """Numbers of 64 bits: an array in Postgres, words of 16 digits in SQLite, for its full text."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the column's type in a database."""
        kind = ARRAY(BigInteger) if dialect.name == "postgresql" else Text()
        return dialect.type_descriptor(kind)

    def process_bind_param(self, value: Sequence[int] | None, dialect: Dialect) -> object:
        """Return what the driver takes."""
        if value is None or dialect.name == "postgresql":
            return value
        return " ".join(map(as_word, value))

    def process_result_value(self, value: Any, dialect: Dialect) -> Sequence[int] | None:  # noqa: ANN401 - the driver's
        """Return what the driver gave as numbers."""
        if value is None or dialect.name == "postgresql":
            found: Sequence[int] | None = value
            return found
        return [_number(word) for word in value.split()]


def as_word(key: int) -> str:
    """Write a number down in the 16 digits by which SQLite's full text knows it."""
    return f"{key & _ALL_BITS:016x}"


def _number(word: str) -> int:
    return int.from_bytes(bytes.fromhex(word), signed=True)
