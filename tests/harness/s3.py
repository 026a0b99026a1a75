"""A real S3 server on loopback."""

from __future__ import annotations

import html
import re
import sys
import urllib.error
import urllib.request

from harness.origin_server import BUCKET, OriginServer

SECRET = "a-secret-that-is-never-logged"
ACCESS = "AKIDNEVERLOGGED"

_PLAIN = {
    # urllib says that it sends a form, otherwise, and the server reads it as one.
    "Content-Type": "application/octet-stream",
    "Authorization": f"AWS4-HMAC-SHA256 Credential={ACCESS}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, "
    "Signature=unchecked",
}


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
        self._request("PUT", f"/{BUCKET}")

    def put(self, key: str, content: bytes) -> None:
        self._request("PUT", f"/{BUCKET}/{urllib.request.quote(key)}", content)

    def delete(self, key: str) -> None:
        self._request("DELETE", f"/{BUCKET}/{urllib.request.quote(key)}")

    def get(self, key: str) -> bytes | None:
        try:
            return self._request("GET", f"/{BUCKET}/{urllib.request.quote(key)}")
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return None

    def keys(self, prefix: str) -> list[str]:
        found = self._request("GET", f"/{BUCKET}?list-type=2&prefix={urllib.request.quote(prefix)}/").decode()
        return [html.unescape(key) for key in re.findall(f"<Key>{re.escape(prefix)}/([^<]*)</Key>", found)]

    def _request(self, method: str, path: str, body: bytes = b"") -> bytes:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data=body, method=method, headers=_PLAIN
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            content: bytes = answer.read()
            return content
