"""The page of all error codes."""

from typing import Final

from service.errors import CODES, ErrorCode

_HEAD: Final = """\
# Errors

The codes of `content.error.code` in a [response](wire.md#errors), and those used elsewhere.
This page and [errors.json](schemas/errors.json) are written by `make reference`.
Accept unknown codes, and decide by `retryable`: a minor version may add some.
"""


def page() -> str:
    """Return the page."""
    on_wire = [_section(error) for error in CODES.values() if error.on_the_wire]
    others = [_section(error) for error in CODES.values() if not error.on_the_wire]
    return "\n".join(
        [
            _HEAD,
            "## On the wire\n",
            *on_wire,
            "## Elsewhere\n",
            "Commands, the client and [HTTP](http.md) use these; they are never sent on the bus.\n",
            *others,
        ]
    )


def _section(error: ErrorCode) -> str:
    retryable = "yes" if error.retryable else "no"
    return f"""\
### `{error.code}`

{error.title}.

- **Retryable:** {"see `retryable` of the error" if error.varies else retryable}.
- **When:** {error.when}
- **What to do:** {error.remedy}
"""
