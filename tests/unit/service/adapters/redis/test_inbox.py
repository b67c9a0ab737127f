from collections.abc import Sequence
from typing import Any, cast

import pytest
from redis.exceptions import NoPermissionError, ResponseError

from service.adapters.bus_options import BusOptions
from service.adapters.redis.driver import Command
from service.adapters.redis.inbox import RedisInbox
from service.adapters.redis.servers import Servers
from service.errors import ForbiddenError


async def test_refused_scripts_name_their_cause() -> None:
    """The server's own error is the cause, also after one about a missing group."""
    refused = NoPermissionError("no permission")

    class Refusing:
        async def execute(self, _calls: Sequence[Command]) -> list[Any]:
            return [ResponseError("NOGROUP no such group"), refused]

    async def find_topics() -> Sequence[str]:
        return ("one", "two")

    inbox = RedisInbox(cast("Servers", Refusing()), find_topics, "g", BusOptions())

    with pytest.raises(ForbiddenError) as raised:
        await inbox.trim()

    assert raised.value.__cause__ is refused
