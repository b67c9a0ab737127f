"""Manifests as they are stored."""

import json
import zlib

import pytest

from service.audit.manifest import ground, make_manifest, unpacked
from tests.support import MakeBuilder, MakeRequest


async def test_a_manifest_survives_its_packing(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """It is zlib-compressed JSON, and comes back as it was."""
    builder = make_builder()
    manifest = make_manifest(await builder.built(make_request()), ground(builder.settings))

    packed = manifest.packed()

    assert unpacked(packed) == manifest
    assert json.loads(zlib.decompress(packed))["version"] == 1


@pytest.mark.parametrize(
    "packed",
    [b"", b"plain", zlib.compress(b"no JSON"), zlib.compress(b'{"version": 2}')],
)
def test_what_is_no_manifest_is_refused(packed: bytes) -> None:
    """Other bytes, and manifests of another version, are not misread."""
    with pytest.raises(ValueError, match=r"zlib|JSON|version|EOF"):
        unpacked(packed)
