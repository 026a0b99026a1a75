"""A real S3 server on loopback."""

from __future__ import annotations

import html
import re
import sys
from urllib.parse import quote

from lab.harness.origins.server import BUCKET, OriginServer

SECRET = "a-secret-that-is-never-logged"
ACCESS = "AKIDNEVERLOGGED"

_AUTHORIZATION = (
    f"AWS4-HMAC-SHA256 Credential={ACCESS}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=unchecked"
)


class S3(OriginServer):
    """moto's."""

    scheme = "s3"
    secrets = (SECRET, ACCESS)  # the last one is sent

    def command(self) -> list[str]:
        return [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def make_bucket(self) -> None:
        self.ask("PUT", f"/{BUCKET}")

    def put(self, key: str, content: bytes) -> None:
        self.ask("PUT", self.content_path(key), content)

    def delete(self, key: str) -> None:
        self.ask("DELETE", self.content_path(key))

    def content_path(self, key: str) -> str:
        return f"/{BUCKET}/{quote(key)}"

    def keys(self, prefix: str) -> list[str]:
        found = self.ask("GET", f"/{BUCKET}?list-type=2&prefix={quote(prefix)}/").decode()
        return [html.unescape(key) for key in re.findall(f"<Key>{re.escape(prefix)}/([^<]*)</Key>", found)]

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
        return super().ask(method, path, body, Authorization=_AUTHORIZATION, **headers)
