"""Answers on their way out of a Redis bus: stored, sent and settled."""

from collections.abc import Sequence
from typing import Any, Final

import structlog
from redis.exceptions import NoPermissionError, ResponseError

from service.adapters.bus_options import BusOptions
from service.adapters.dead_letters import dead_letter_fields
from service.adapters.redis.client import is_away
from service.adapters.redis.keys import Shard
from service.adapters.redis.round_trip import Argument
from service.adapters.redis.scripts import FINISH, Call, Command, flat
from service.adapters.redis.servers import Servers
from service.adapters.redis.shards import Shards
from service.adapters.redis.steps import Steps
from service.adapters.stored_results import pack
from service.bus import Answer, Outcome, Receipt
from service.wire import Topics

#: What `FINISH` returns in place of receivers where the reply's place takes none.
REPLY_REFUSED: Final = -2

log = structlog.get_logger()


class Finisher:
    """Stores, sends and settles answers: in one step each where one server has all their keys."""

    def __init__(self, servers: Servers, shards: Shards, options: BusOptions) -> None:
        #: Replies in lists and streams that the server's rules kept this worker from writing.
        self.forbidden = 0
        self._servers = servers
        self._shards = shards
        self._options = options
        self._result_ms = int(options.result_ttl_seconds * 1000)
        self._reply_ms = int(options.reply_ttl_seconds * 1000)
        self._steps = Steps(servers, options)

    async def finish(self, answers: Sequence[Answer]) -> list[Receipt]:
        """Finish answers in one round trip; raises what redis-py does.

        An answer whose node of a cluster is away is no longer ours: its delivery is pending there,
        and whoever claims it when the node is back answers it.
        """
        answered = await self._answered_elsewhere(answers)
        calls = {
            place: self._call(answer)
            for place, answer in enumerate(answers)
            if place not in answered
        }
        whole = {place: call for place, call in calls.items() if self._is_whole(answers[place])}
        replies = dict(
            zip(whole, await self._servers.attempt([*whole.values()]), strict=True),
        )
        for place in calls.keys() - whole.keys():
            replies[place] = await self._steps.finish(answers[place], calls[place])
        for place, reply in replies.items():
            if isinstance(reply, ResponseError) and not _forbids(answers[place], reply):
                raise reply
        await self._count_receivers(answers, replies)
        return [
            Receipt(outcome=Outcome.ANSWERED)
            if place in answered
            else self._receipt(answer, replies[place])
            for place, answer in enumerate(answers)
        ]

    def _is_whole(self, answer: Answer) -> bool:
        """Say whether a step can do all that an answer needs."""
        in_slot = answer.reply_kind == "channel" and answer.dead_letter is None
        return self._servers.undivided or in_slot

    async def _answered_elsewhere(self, answers: Sequence[Answer]) -> set[int]:
        """Return the first answers to requests that were answered under another shard's name."""
        keys = [
            (place, key)
            for place, answer in enumerate(answers)
            if answer.mode == "first"
            for key in self._shards.rivals(answer.identity, answer.delivery.source)
        ]
        found = await self._servers.attempt([Command(key, ("EXISTS", key)) for _, key in keys])
        return {place for (place, _), reply in zip(keys, found, strict=True) if reply == 1}

    def _call(self, answer: Answer) -> Call:
        options, delivery = self._options, answer.delivery
        shard = Shard(options.prefix, delivery.source)
        keys = [shard.result(answer.identity), shard.stream]
        if self._servers.undivided:
            keys.append(options.prefix + Topics.CONTEXT_BUILD_DEAD)
            keys += [] if answer.reply_kind == "channel" else [answer.reply_to]
        value = b""
        if answer.mode == "first":
            value = pack(answer.fingerprint, answer.response, options.result_max_bytes)
        arguments: list[Argument] = [answer.mode, value, self._result_ms]
        arguments += [options.group, options.consumer, delivery.token]
        arguments += [answer.reply_kind, answer.response]
        arguments += [self._reply_ms, options.reply_max_length, answer.reply_to]
        if answer.dead_letter is not None:
            now = self._servers.clock.now()
            fields = dead_letter_fields(delivery, answer.dead_letter, now)
            arguments += [options.dead_max_length, *flat(fields)]
        return Call(FINISH, keys, arguments)

    async def _count_receivers(self, answers: Sequence[Answer], replies: dict[int, Any]) -> None:
        """Ask again where a script reached nobody: in a cluster it knows its own node's only."""
        silent = [
            place
            for place, reply in replies.items()
            if not isinstance(reply, Exception) and reply[1] == 0
        ]
        if silent and not self._servers.undivided:
            heard = await self._servers.unheard([answers[place].reply_to for place in silent])
            for place, count in zip(silent, heard, strict=True):
                replies[place] = [replies[place][0], count]

    def _receipt(self, answer: Answer, reply: Any) -> Receipt:  # noqa: ANN401 - Lua's reply
        if isinstance(reply, ResponseError):
            self.forbidden += 1
            log.warning("bus.reply_forbidden", reply_to=answer.reply_to, kind=answer.reply_kind)
            return Receipt(outcome=Outcome.FORBIDDEN)
        if is_away(reply):
            return Receipt(outcome=Outcome.NOT_MINE)
        outcome, receivers = reply
        if receivers == REPLY_REFUSED:
            log.warning("bus.reply_refused", reply_to=answer.reply_to, kind=answer.reply_kind)
        receivers = receivers if receivers >= 0 else None
        return Receipt(outcome=Outcome(outcome.decode()), receivers=receivers)


def _forbids(answer: Answer, error: ResponseError) -> bool:
    """Say whether the server refused a script, before it began, for the key of its reply."""
    return answer.reply_kind != "channel" and isinstance(error, NoPermissionError)
