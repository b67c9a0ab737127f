"""The section of all error codes."""

from typing import Final

from service.errors import CODES, ErrorCode
from service.http.error_responses import status_of

#: Statuses that depend on more than the code; one that HTTP doesn't have is empty.
_STATUSES: Final = {"internal": "500, 503 if retryable", "no_worker": ""}

_HEAD: Final = """\
## Errors

```json
{"code": "budget_exceeded", "title": "The protected parts do not fit into the token budget",
 "detail": "the parts that may not be left out need 1860 tokens, 1060 more than the 800 available…",
 "retryable": false, "errors": []}
```

This is `content.error` of a [response](wire.md#responses), and `error` over [HTTP](http.md#errors).
`title` depends on the code alone, and `detail` says what happened.
`errors` lists places in the request as JSON pointers, each with its own `detail`.
Accept unknown codes, since a minor version may add some.
To decide whether to retry, read `retryable`.
[errors.json](schemas/errors.json) has the same codes.
"""

_TABLE: Final = "| Code | HTTP | Retryable | Meaning |\n| --- | --- | --- | --- |"


def section() -> str:
    """Return the section."""
    on_wire = {code: error for code, error in CODES.items() if error.on_the_wire}
    others = {code: error for code, error in CODES.items() if not error.on_the_wire}
    return "\n".join(
        [
            _HEAD,
            _TABLE,
            *(_row(code, error) for code, error in CODES.items()),
            "\n### Errors on the bus\n",
            *(_code(code, error) for code, error in on_wire.items()),
            "### Errors elsewhere\n",
            "Commands, the client and [HTTP](http.md) use these codes; the bus never has them.\n",
            *(_code(code, error) for code, error in others.items()),
        ]
    )


def _row(code: str, error: ErrorCode) -> str:
    retryable = {True: "yes", False: "no"}[error.retryable]
    status = _STATUSES.get(code, f"{status_of(code, retryable=error.retryable)}")
    if error.varies:
        retryable = "varies"
    return f"| [`{code}`](#{code}) | {status} | {retryable} | {error.title} |"


def _code(code: str, error: ErrorCode) -> str:
    retryable = "yes" if error.retryable else "no"
    return f"""\
#### `{code}`

{error.title}.

- **Retryable:** {"see `retryable` of the error" if error.varies else retryable}.
- **When:** {error.when}
- **What to do:** {error.remedy}
"""
