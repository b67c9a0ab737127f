"""The nodes of a cluster: which of them has a key, and which are away."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from time import monotonic
from typing import Any, Final

import structlog
from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from service.adapters.bus_options import BusOptions
from service.adapters.redis.client import (
    Address,
    Clients,
    NodeClosedError,
    as_closed,
    make_clients,
)
from service.adapters.redis.scripts import Call, Command, attempt, send
from service.errors import ConfigError

#: Seconds for which a node that does not answer is left alone: the first time, and at most.
AWAY_SECONDS: Final = 0.25
LONGEST_AWAY_SECONDS: Final = 2.0

log = structlog.get_logger()


class Node:
    """A node, with connections to it; while it is away, it is asked now and then only.

    So is one that is closed, which answers and takes no writes: what is read there could not be
    answered. It is open again when it would take one.
    """

    def __init__(self, address: Address, clients: Clients) -> None:
        self.name = f"{address.host}:{address.port}"
        self.address = address
        self.clients = clients
        self._pause = 0.0
        self._until = 0.0
        #: What it says where it is closed.
        self._closed: NodeClosedError | None = None

    @property
    def away(self) -> bool:
        """Say whether it did not answer just now, or was closed."""
        return monotonic() < self._until

    async def attempt(self, calls: Sequence[Call | Command]) -> list[Any]:
        """Run calls; where it is away or closed, an error stands in place of every reply."""
        if self.away:
            return [self.absence] * len(calls)
        try:
            key = calls[0].key if calls else ""
            if self._closed and key and await self._refuses(key):
                return [self.absence] * len(calls)
            replies = await attempt(self.clients.commands, calls)
        except ResponseError:
            raise
        except (RedisError, OSError) as error:
            self.lost(error)
            return [error] * len(calls)
        self.found()
        return self._heeded(replies)

    async def _refuses(self, key: str) -> bool:
        """Say whether it takes no writes still, by one that can't be: its syntax is wrong.

        A closed node refuses it before it is looked at. Raises what redis-py does.
        """
        impossible = Command(key, ("SET", key, "", "NX", "XX"))
        (reply,) = await send(self.clients.commands, [impossible], by_name=False)
        if closed := as_closed(reply):
            self.lost(closed)
            return True
        self._closed = None
        return False

    def _heeded(self, replies: list[Any]) -> list[Any]:
        """Return replies; where some say that the node is closed, that is noted."""
        seen = [_as_closed(reply) for reply in replies]
        parts = (part for reply in seen for part in (reply if isinstance(reply, list) else [reply]))
        closed = next((part for part in parts if isinstance(part, NodeClosedError)), None)
        if closed:
            self.lost(closed)
        return seen

    async def attempt_asking(self, call: Call | Command) -> Any:  # noqa: ANN401 - the server's reply
        """Run a call on a slot that is on its way here, as its old node has asked us to."""
        # by its name, an unknown script would have to be asked for twice
        asking = Command(call.key, ("ASKING",))
        try:
            _, reply = await send(self.clients.commands, [asking, call], by_name=False)
        except (RedisError, OSError) as error:
            self.lost(error)
            return error
        return self._heeded([reply])[0]

    @property
    def absence(self) -> RedisError:
        """Return the error that stands for it while it is away."""
        return self._closed or RedisConnectionError(f"{self.name} does not answer")

    def lost(self, error: Exception) -> None:
        """Note that it did not answer, or is closed."""
        if not self._pause:
            log.warning("bus.node_away", node=self.name, reason=str(error) or type(error).__name__)
        self._closed = error if isinstance(error, NodeClosedError) else None
        self._pause = min(self._pause * 2 or AWAY_SECONDS, LONGEST_AWAY_SECONDS)
        self._until = monotonic() + self._pause

    def found(self) -> None:
        """Note that it answered, which it also does while it is closed."""
        if self._closed:
            return
        if self._pause:
            log.info("bus.node_back", node=self.name)
        self._pause = self._until = 0.0


def _as_closed(reply: Any) -> Any:  # noqa: ANN401 - the server's
    """Return a reply with errors of their own in the place of those that a closed node gives."""
    if isinstance(reply, list) and any(isinstance(part, ResponseError) for part in reply):
        return [_as_closed(part) for part in reply]
    return as_closed(reply) or reply


class Nodes:
    """The nodes that take writes, and their slots, as the cluster last told."""

    def __init__(self, stack: AsyncExitStack, url: str, options: BusOptions) -> None:
        self._stack = stack
        self._url = url
        self._options = options
        first = make_clients(stack, url, options)
        where = first.commands.connection_pool.connection_kwargs
        if "path" in where:
            raise ConfigError("bus.url: a cluster is not reached over a socket in the file system")
        if where.get("db"):
            raise ConfigError("bus.url: a cluster has no databases but 0")
        #: Where the URL points to: asked for the others where none of those answers.
        self._first = Node(Address(where.get("host", "localhost"), where.get("port", 6379)), first)
        self._nodes: dict[Address, Node] = {}
        self._slots: dict[int, Node] = {}
        self._asked_at = -AWAY_SECONDS

    @property
    def all(self) -> Sequence[Node]:
        """Return the nodes, those that answer first."""
        return sorted(dict.fromkeys(self._slots.values()), key=lambda node: node.away)

    def of(self, key: str) -> Node | None:
        """Return the node that has a key, or None where the cluster has none for it."""
        return self._slots.get(key_slot(key.encode()))

    def at(self, address: Address) -> Node:
        """Return the node at an address."""
        if address not in self._nodes:
            clients = make_clients(self._stack, self._url, self._options, address)
            self._nodes[address] = Node(address, clients)
        return self._nodes[address]

    def target(self, error: AskError) -> Node:
        """Return the node to which another one sends us; a host that it leaves out is its own."""
        return self.at(Address(error.host or self._first.address.host, error.port))

    def moved(self, error: MovedError) -> None:
        """Note where a slot is now."""
        self._slots[error.slot_id] = self.target(error)

    async def refresh(self, *, now: bool = False) -> None:
        """Ask which node has which slots, unless that was done just now; raises `RedisError`."""
        if not now and monotonic() - self._asked_at < AWAY_SECONDS:
            return
        reply = await self._told()
        slots: dict[int, Node] = {}
        for low, high, primary, *_replicas in reply:
            host = primary[0].decode() or self._first.address.host
            node = self.at(Address(host, int(primary[1])))
            slots.update(dict.fromkeys(range(low, high + 1), node))
        self._slots = slots
        self._asked_at = monotonic()

    async def _told(self) -> Any:  # noqa: ANN401 - as the server gives it
        """Return what the first node that answers says of the slots."""
        reply: Any = None
        for node in dict.fromkeys([*self.all, self._first]):
            (reply,) = await node.attempt([Command("", ("CLUSTER SLOTS",))])
            if isinstance(reply, ResponseError):
                raise reply
            if not isinstance(reply, Exception):
                return reply
        raise reply
