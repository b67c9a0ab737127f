import pytest

from formatters.model import Message, Role
from formatters.repair.sequence import split_units

ROLES = {"u": Role.HUMAN, "a": Role.AI, "t": Role.TOOL}


@pytest.mark.parametrize(
    ("names", "units"),
    [
        ("", []),
        ("u", ["u"]),
        ("u0 a1 t1 t2 a2", ["u0", "a1 t1 t2", "a2"]),
        ("a0 a1 t1 a2 t2 u3 u4", ["a0", "a1 t1", "a2 t2", "u3", "u4"]),
    ],
)
def test_units(names: str, units: list[str]) -> None:
    """A call and its results are one unit, and every other message is one."""
    messages = [Message(id=name, role=ROLES[name[0]], content=name) for name in names.split()]

    assert [" ".join(message.id for message in unit) for unit in split_units(messages)] == units
