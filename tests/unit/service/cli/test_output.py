"""What all commands print with."""

from service.cli.output import printable


def test_nothing_steers_the_terminal() -> None:
    """Escape sequences in people's words are shown as replacement characters."""
    assert printable("a\x1b[2Jb\x9bc\r\n\tä") == "a�[2Jb�c�\n\tä"
