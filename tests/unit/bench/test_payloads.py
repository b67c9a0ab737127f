import json

import pytest

from bench.payloads.making import payload, result_row
from bench.payloads.reading import Sender, sender


def test_payloads_come_out_alike() -> None:
    """A number and a seed name one payload, and others another."""
    made = [payload(1, number) for number in range(200)]

    assert made == [payload(1, number) for number in range(200)]
    assert len(set(made)) > 150
    assert result_row(1, 3) == result_row(1, 3) != result_row(2, 3)


def test_payloads_are_of_both_kinds() -> None:
    """Many name whom to answer, and many don't."""
    named = sum(sender(payload(1, number)) is not None for number in range(300))

    assert 60 < named < 240


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"owner_key": "o", "id": "a"}', Sender("o", "a")),
        ('{"owner_key": "o", "id": "a", "content": 7}', Sender("o", "a")),
        ('{"owner_key": "", "id": "a"}', None),
        ('{"owner_key": "o", "id": 7}', None),
        ('{"owner_key": 7, "id": "a"}', None),
        (json.dumps({"owner_key": "o" * 129, "id": "a"}), None),
        (json.dumps({"owner_key": "o", "id": "a" * 257}), None),
        ('["owner_key"]', None),
        ('{"owner_key": "o", "id": "a"', None),
    ],
)
def test_who_is_named_is_read(text: str, expected: Sender | None) -> None:
    """Owner and id within their bounds, whatever else is wrong."""
    assert sender(text.encode()) == expected


def test_a_request_without_an_id_has_that_of_its_bytes() -> None:
    """As the wire page says."""
    assert sender(b'{"owner_key": "o"}') == Sender("o", "msg_6ae7b68f7e03dade6748cf81cace620a")
