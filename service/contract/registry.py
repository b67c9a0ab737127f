"""The registry of error codes, as JSON and as a page."""

from dataclasses import asdict
from typing import Any, Final

from service.error_codes import CODES, ErrorCode

_HEAD: Final = """\
# Errors

Every code that `content.error.code` of a [response](wire.md#errors) may have, and some more.
This page and [errors.json](schemas/errors.json) are written by `make reference`.
Bear codes that you don't know, and go by `retryable`: a minor version may add some.
"""


def registry() -> dict[str, Any]:
    """Return the registry as it stands in its file."""
    return {"errors": [asdict(each) for each in CODES.values()]}


def page() -> str:
    """Return the registry as a page of the documents."""
    on_wire = [_section(each) for each in CODES.values() if each.on_the_wire]
    others = [_section(each) for each in CODES.values() if not each.on_the_wire]
    return "\n".join(
        [
            _HEAD,
            "## On the wire\n",
            *on_wire,
            "## Elsewhere\n",
            "Commands, the client and [HTTP](http.md) have these; they never stand on the bus.\n",
            *others,
        ]
    ).removesuffix("\n")


def _section(error: ErrorCode) -> str:
    retryable = "as `retryable` of the error says" if error.varies else _YES_NO[error.retryable]
    return f"""\
### `{error.code}`

{error.title}.

- **Retryable:** {retryable}.
- **When:** {error.when}
- **What to do:** {error.remedy}
"""


_YES_NO: Final = {True: "yes", False: "no"}
