from tests.validity.forms import VALIDATORS

FIELDS = ("messages", "contents", "input", "system", "systemInstruction", "instructions", "tools")
ODD: list[object] = [
    None,
    7,
    "text",
    {},
    [],
    [None],
    ["text"],
    [{}],
    [{"role": [], "content": [7]}],
]


def test_a_validator_is_given_anything() -> None:
    """Strangers' bodies are found wrong, not stumbled over."""
    for value in ODD:
        for validate in VALIDATORS.values():
            assert validate(dict.fromkeys(FIELDS, value), []) != []
