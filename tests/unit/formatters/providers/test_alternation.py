from formatters.providers.alternation import CONTINUE, OPENING, ProviderMessage, alternate_roles


def turns(*messages: ProviderMessage) -> list[tuple[str, list[object]]]:
    """Return what messages come to, with texts marked as ours."""
    return list(alternate_roles(messages, lambda text: ("text", text)))


def user(*blocks: object, separate: bool = False) -> ProviderMessage:
    """Return what a user says."""
    return ProviderMessage(role="user", blocks=tuple(map(block, blocks)), separate=separate)


def assistant(*blocks: object, leads: bool = False) -> ProviderMessage:
    """Return what an assistant says."""
    return ProviderMessage(role="assistant", blocks=tuple(map(block, blocks)), leads=leads)


def block(name: object) -> dict[str, object]:
    """Return a block."""
    return {"block": name}


def test_neighbours_of_one_role_are_merged() -> None:
    """Their blocks keep their order."""
    merged = turns(user(1), user(2, 3), assistant(4), assistant(5), user(6))

    assert merged == [
        ("user", [block(1), block(2), block(3)]),
        ("assistant", [block(4), block(5)]),
        ("user", [block(6)]),
    ]


def test_an_assistant_is_never_first_or_last() -> None:
    """A short placeholder takes the place of a user's text."""
    assert turns(assistant(1)) == [
        ("user", [("text", OPENING)]),
        ("assistant", [block(1)]),
        ("user", [("text", CONTINUE)]),
    ]


def test_nothing_precedes_a_leading_thought() -> None:
    """Two answers that can't be one message have a user's between them."""
    assert turns(user(1), assistant(2), assistant(3, leads=True), user(4)) == [
        ("user", [block(1)]),
        ("assistant", [block(2)]),
        ("user", [("text", CONTINUE)]),
        ("assistant", [block(3)]),
        ("user", [block(4)]),
    ]


def test_messages_that_stand_separate_share_only_with_their_like() -> None:
    """Google refuses a text next to a function's response."""
    merged = turns(user(1), assistant(2), user(3, separate=True), user(4, separate=True), user(5))

    assert merged[2:] == [("user", [block(3), block(4)]), ("user", [block(5)])]


def test_messages_without_blocks_go() -> None:
    """An API refuses a message without content."""
    assert turns(user(1), assistant(), user(2)) == [("user", [block(1), block(2)])]
    assert turns() == []
