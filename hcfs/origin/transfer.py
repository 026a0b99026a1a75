"""One object on its way from an origin: in order, continued after errors, and checked as a whole at its end."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from hcfs.origin.client import Listed, OriginClient
from hcfs.origin.errors import OriginError, WrongContent
from hcfs.origin.retrying import Patience

PIECE = 16 << 20
"""Bytes asked for in one request: what is lost of it, when a connection ends, is asked for again from where it broke
off."""

_MD5_ETAG = re.compile(r'"([0-9a-f]{32})"')


def md5_of(etag: str) -> str | None:
    """The MD5 that an ETag is, as S3's is for an object that came in one part and isn't encrypted by a key of the
    user's; None where it is something else."""
    found = _MD5_ETAG.fullmatch(etag)
    return found[1] if found else None


def transfer(client: OriginClient, listed: Listed, patience: Patience, *, md5: bool) -> Iterator[memoryview]:
    """The object's bytes, in pieces, in order; an empty one when the origin has begun to answer. It ends only when all
    of them came and agree with its size, and with its ETag where `md5` says that this is a checksum. Blocks. Raises
    OriginError; WrongContent when they don't agree."""
    digest = hashlib.md5(usedforsecurity=False)
    at = 0
    asked = False  # also for an object without bytes: it may be another one by now, or none
    while at < listed.size or not asked:
        end = min(at + PIECE, listed.size)
        try:
            for chunk in client.fetch(listed, at, end):
                if at + len(chunk) > end:
                    raise WrongContent(f"{listed.key}: the origin sent more than the {end - at} bytes it was asked for")
                if patience.stop.is_set():
                    raise OriginError(f"{listed.key}: the mount ends")
                digest.update(chunk)
                at += len(chunk)
                if chunk:
                    patience.gained()
                yield chunk
            asked = True
            if at < end:
                raise OriginError(f"{listed.key}: the origin's answer ended {end - at} bytes too early")
        except OriginError as error:
            patience.after(error)
    expected = md5_of(listed.etag) if md5 else None
    if expected is not None and digest.hexdigest() != expected:
        raise WrongContent(
            f"{listed.key}: the bytes that came have the MD5 {digest.hexdigest()}, the origin's ETag says {expected}; "
            "if its ETags aren't checksums, as with keys of KMS, create the namespace with --origin-check length"
        )
