"""Cut a text to a number of characters."""

from typing import Final

#: Ends a text that was cut.
CUT_MARK: Final = "..."


def cut(text: str, chars: int | None) -> str:
    """Return at most so many characters of a text, the mark among them; None for no limit."""
    if chars is None or len(text) <= chars:
        return text
    return (text[: max(chars - len(CUT_MARK), 0)] + CUT_MARK)[:chars]
