"""A cluster of three servers on this machine, without replicas."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import redis

from service.adapters.embedded.binaries import ServerBinary
from tests.bus_server import START_SECONDS, RealServer, free_port

NODES = 3
SLOTS = 16384
#: Milliseconds after which nodes take another one for dead.
NODE_TIMEOUT = 1000


#: Gives the lines that make a server speak TLS on a port.
Tls = Callable[[int], Sequence[str]]


class RealCluster:
    """Nodes that share the slots among them; each may be killed, and started again."""

    def __init__(self, binary: ServerBinary, directory: Path, tls: Tls | None = None) -> None:
        self.nodes: list[RealServer] = []
        #: Where each node lets itself be found.
        self._ports: list[int] = []
        for number in range(NODES):
            secured = free_port()
            more = () if tls is None else ("tls-cluster yes", *tls(secured))
            node = _node(binary, directory / f"node-{number}", more)
            self.nodes.append(node)
            self._ports.append(node.port if tls is None else secured)
        self._scheme = "redis+cluster" if tls is None else "rediss+cluster"

    @property
    def url(self) -> str:
        """Return where its first node is."""
        return f"{self._scheme}://127.0.0.1:{self._ports[0]}/0"

    def start(self) -> None:
        """Start the nodes, give them their slots, and wait until all know all."""
        for node in self.nodes:
            node.start()
        share = -(-SLOTS // len(self.nodes))
        for number, node in enumerate(self.nodes):
            last = min((number + 1) * share, SLOTS) - 1
            with node.client() as client:
                client.execute_command("CLUSTER ADDSLOTSRANGE", number * share, last)
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
        with self.nodes[0].client() as client:
            bus = client.config_get("cluster-port")["cluster-port"]
            for node in self.nodes[1:]:
                with node.client() as other:
                    other.execute_command("CLUSTER MEET", "127.0.0.1", self._ports[0], bus)
        self.settle()

    def settle(self) -> None:
        """Wait until every node says that all slots are served."""
        for node in self.nodes:
            with node.client() as client:
                wait_until(partial(_settled, client, len(self.nodes)))

    def stop(self) -> None:
        """End the nodes."""
        for node in self.nodes:
            node.stop()


def wait_until(fact: Callable[[], bool]) -> None:
    """Wait for a fact of servers."""
    end = time.monotonic() + START_SECONDS
    while not fact():
        assert time.monotonic() < end, "the cluster does not settle"
        time.sleep(0.02)


def _settled(client: redis.Redis, nodes: int) -> bool:
    said = client.cluster("INFO")
    facts = (said["cluster_slots_ok"], said["cluster_known_nodes"], said["cluster_state"])
    return facts == (str(SLOTS), str(nodes), "ok")


def _node(binary: ServerBinary, directory: Path, tls: Sequence[str]) -> RealServer:
    # the port among nodes is one of its own: ten thousand above the other may be taken, or none
    more: Sequence[str] = (
        *("cluster-enabled yes", f"cluster-port {free_port()}"),
        *(f"cluster-node-timeout {NODE_TIMEOUT}", "cluster-require-full-coverage no"),
        *tls,
    )
    return RealServer(binary, directory, durable=True, more=more)
