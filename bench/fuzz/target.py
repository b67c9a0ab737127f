"""What atheris calls again and again; run by `bench.fuzz`, with libFuzzer's own options."""

import sys
from datetime import UTC, datetime

import atheris

with atheris.instrument_imports(include=["service", "formatters", "json"]):
    from service.wire.request import RejectedError, decode
    from service.wire.response import BuildResponse, error_response

#: When all refusals are dated.
NOW = datetime(2025, 12, 10, tzinfo=UTC)


def check(payload: bytes) -> None:
    """Decode bytes; raises whatever is wrong with the way in.

    A refusal has to become a response where its sender is known, and a request has to hold what the
    service reads of it.
    """
    try:
        request = decode(payload)
    except RejectedError as rejected:
        if rejected.envelope is not None:
            error_response(
                BuildResponse, rejected.envelope, rejected.error, NOW
            ).model_dump_json().encode()
        return
    if not request.current_input.strip() or request.envelope.id != request.id:
        raise AssertionError("a request without an input, or with two ids")
    request.model_dump_json().encode()
    repr((request.run_rows, [*request.ignored_keys], request.input_id)).encode()


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
