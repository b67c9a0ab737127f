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
    """The keys of one request stream, which share its slot in a cluster."""

    prefix: str
    #: The name of the stream, without the prefix.
    topic: str = Topics.CONTEXT_BUILD_REQUEST

    @property
    def stream(self) -> str:
        """Return the key of the stream."""
        return self.prefix + self.topic

    def result(self, identity: Identity) -> str:
        """Return the key of the stored answer to a request."""
        # the length distinguishes ("a", "bc") from ("ab", "c")
        owner = identity.owner_key.encode()
        digest = hashlib.sha256(b"%d:%b%b" % (len(owner), owner, identity.id.encode()))
        return self._key(RESULT, digest.hexdigest())

    def heard(self, payload: bytes) -> str:
        """Return the key of the set of workers that have received a payload."""
        return self._key("context.build.heard", hashlib.sha256(payload).hexdigest())

    def _key(self, kind: str, digest: str) -> str:
        # a numbered stream contains its hash tag; any other name is hashed as a whole
        _, brace, tagged = self.topic.partition("{")
        tag = brace + tagged if brace else f"{{{self.stream}}}"
        return f"{self.prefix}{kind}.{tag}.{digest}"


def result_key(
    identity: Identity, prefix: str = "", topic: str = Topics.CONTEXT_BUILD_REQUEST
) -> str:
    """Return the key of the stored answer to a request, for readers in any language.

    The key is ``context.build.result.{context.build.request}.<hex>``, with the SHA-256 of
    ``<length of the owner key in bytes>:<owner key><id>``, all in UTF-8. With several shards, the
    braces contain the number of the owner's shard.
    """
    return Shard(prefix, topic).result(identity)


def shards_key(prefix: str = "") -> str:
    """Return the key of the number of shards, which is a decimal."""
    return f"{prefix}context.build.shards"


def report_key(build_id: str, prefix: str = "") -> str:
    """Return the key of the report of a build, for readers in any language."""
    return f"{prefix}{REPORT}.{build_id}"


def result_pattern(prefix: str = "") -> str:
    """Return the glob that the keys of all stored answers match."""
    return f"{escape_glob(prefix)}{RESULT}.*"


def report_pattern(prefix: str = "") -> str:
    """Return the glob that the keys of all reports match."""
    return f"{escape_glob(prefix)}{REPORT}.*"


def escape_glob(text: str) -> str:
    """Escape the special characters of globs."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", text)
