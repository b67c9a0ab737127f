"""The names of the keys on a Redis bus; shards, results and reports are part of the wire."""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from service.ports.bus import Identity
from service.wire.protocol import Topics

RESULT: Final = "context.build.result"
REPORT: Final = "context.build.report"


@dataclass(frozen=True, slots=True)
class Shard:
    """The keys that belong to one request stream and share its slot in a cluster."""

    prefix: str
    #: The name of the stream, without the prefix.
    topic: str = Topics.CONTEXT_BUILD_REQUEST

    @property
    def stream(self) -> str:
        """Return the key of the stream itself."""
        return self.prefix + self.topic

    def result(self, identity: Identity) -> str:
        """Return the key that holds the answer to a request."""
        # The length tells ("a", "bc") from ("ab", "c").
        owner = identity.owner_key.encode()
        digest = hashlib.sha256(b"%d:%b%b" % (len(owner), owner, identity.id.encode()))
        return self._key(RESULT, digest.hexdigest())

    def heard(self, payload: bytes) -> str:
        """Return the key of the set of workers that have heard a payload."""
        return self._key("context.build.heard", hashlib.sha256(payload).hexdigest())

    def _key(self, kind: str, digest: str) -> str:
        # a numbered stream has its tag; any other is hashed as a whole, and so are its keys
        _, brace, tagged = self.topic.partition("{")
        tag = brace + tagged if brace else f"{{{self.stream}}}"
        return f"{self.prefix}{kind}.{tag}.{digest}"


def result_key(
    identity: Identity, prefix: str = "", topic: str = Topics.CONTEXT_BUILD_REQUEST
) -> str:
    """Return where the answer to a request is kept, for readers in any language.

    The key is ``context.build.result.{context.build.request}.<hex>``, with the SHA-256 of
    ``<length of the owner key in bytes>:<owner key><id>``, all in UTF-8; with several shards, the
    number of the owner's stands between the braces.
    """
    return Shard(prefix, topic).result(identity)


def shards_key(prefix: str = "") -> str:
    """Return where it stands how many shards there are, as a decimal."""
    return f"{prefix}context.build.shards"


def report_key(build_id: str, prefix: str = "") -> str:
    """Return the key of the report of a build, for readers in any language."""
    return f"{prefix}{REPORT}.{build_id}"


def result_pattern(prefix: str = "") -> str:
    """Return what the keys of all stored answers match, in the glob form of SCAN."""
    return f"{literally(prefix)}{RESULT}.*"


def report_pattern(prefix: str = "") -> str:
    """Return what the keys of all reports match, in the glob form of SCAN."""
    return f"{literally(prefix)}{REPORT}.*"


def literally(text: str) -> str:
    """Escape what globs take for more than itself."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", text)
