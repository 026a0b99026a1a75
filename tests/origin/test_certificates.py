"""Servers whose certificate a private authority has signed, and passwords in the URL that leads to them."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hcfs.origin import OriginError, OriginRefused, redacted
from hcfs.origin.object_store import ObjectStoreClient
from lab.harness.actors import errno_of
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.origins.clients import WARNINGS

KEYS = {
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "AKIDNEVERLOGGED",
    "AWS_SECRET_ACCESS_KEY": "a-secret-that-is-never-logged",
    "AWS_SESSION_TOKEN": "a/token+that=is-never-logged",
    "GOOGLE_BEARER_TOKEN": "ya29.never-logged",
}
PASSWORD = "s3cret-in-the-url"
SIGNATURE = "signature-in-the-query"

_LISTING = (
    b"<?xml version='1.0' encoding='UTF-8'?><ListBucketResult><IsTruncated>false</IsTruncated><KeyCount>0</KeyCount>"
    b"</ListBucketResult>"
)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(_LISTING)))
        self.end_headers()
        self.wfile.write(_LISTING)

    def log_message(self, *_: Any) -> None:
        pass


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that doesn't take the certificate is part of the tests."""


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    subject: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey, *, authority: bool
) -> bytes:
    now = dt.datetime.now(dt.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(_named(subject))
        .issuer_name(_named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(address, critical=False)
        .sign(signer, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


class Authority:
    """A private authority's certificate, and a server at `endpoint` that it vouches for."""

    def __init__(self, directory: Path) -> None:
        authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        self.path = directory / "authority.pem"
        self.path.write_bytes(_certificate("authority", authority, "authority", authority, authority=True))
        chain = directory / "server.pem"
        chain.write_bytes(
            own.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + _certificate("server", own, "authority", authority, authority=False)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        self._server = _Quiet(("127.0.0.1", 0), _Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Authority]:
    made = Authority(tmp_path)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "AWS_CA_BUNDLE", "AWS_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://{made.address}")
    monkeypatch.setenv("GOOGLE_BASE_URL", f"https://{made.address}")
    yield made
    made.close()


def listed(scheme: str = "s3") -> list[Any]:
    return [each for page in ObjectStoreClient(f"{scheme}://bucket/x").list() for each in page]


@pytest.mark.parametrize(
    ("scheme", "variable"), [("s3", "SSL_CERT_FILE"), ("s3", "AWS_CA_BUNDLE"), ("gs", "SSL_CERT_FILE")]
)
def test_a_private_authority(authority: Authority, monkeypatch: pytest.MonkeyPatch, scheme: str, variable: str) -> None:
    with pytest.raises(OriginError, match=r"certificate isn't accepted: UnknownIssuer.*SSL_CERT_FILE"):
        listed(scheme)
    monkeypatch.setenv(variable, str(authority.path))
    assert listed(scheme) == []


def test_a_bundle_that_is_not_there(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", "/no/such/bundle.pem")
    with pytest.raises(OriginRefused, match=r"AWS_CA_BUNDLE=/no/such/bundle\.pem can't be read"):
        listed()
    monkeypatch.delenv("AWS_CA_BUNDLE")
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file.pem")
    with pytest.raises(OriginError, match=r"SSL_CERT_FILE=/no/such/file\.pem can't be read"):
        listed()


@pytest.mark.parametrize(
    "endpoint",
    ["https://user:{password}@{address}", "http://user:{password}@127.0.0.1:1", "https://{address}/?sig={signature}"],
)
def test_a_password_in_an_endpoint_is_said_nowhere(
    make_mount: Callable[..., Mount], authority: Authority, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    url = endpoint.format(password=PASSWORD, signature=SIGNATURE, address=authority.address)
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    mount = make_mount(options="allow_origin=s3://")
    mount.allow_warnings = WARNINGS
    hcfs("ns", "create", mount.dir, "weights", "--origin", "s3://bucket/x", "--write-policy", "write-through")
    assert errno_of(os.listdir, mount.dir / "weights") == "EIO"
    assert errno_of(os.stat, mount.dir / "weights" / "x") == "EIO"
    error = mount.status()["origins"]["weights"]["last_error"]
    assert "127.0.0.1" in error
    said = mount.log.read_text() + (mount.dir / ".hcfs" / "status.json").read_text() + error
    said += (mount.dir / ".hcfs" / "config.json").read_text() + (mount.dir / ".hcfs" / "metrics").read_text()
    for words in (("status", mount.dir), ("doctor", mount.dir), ("ns", "show", mount.dir, "weights")):
        done = hcfs(*words, check=False)
        said += done.stdout + done.stderr
    for secret in (PASSWORD, SIGNATURE, *KEYS.values()):
        assert secret not in said
        assert json.dumps(secret)[1:-1] not in said


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET http://u:p@h:1/b?list-type=2 in 3 ms", "GET http://***@h:1/b?*** in 3 ms"),
        ("https://u:p@a@h/x", "https://***@h/x"),
        ("s3://bucket/a@b.bin and /srv/a//b@c", "s3://bucket/a@b.bin and /srv/a//b@c"),
        ("s3://bucket/what?.bin isn't there", "s3://bucket/what?.bin isn't there"),
        ("nothing to hide: a?b=c", "nothing to hide: a?b=c"),
    ],
)
def test_what_is_redacted(text: str, shown: str) -> None:
    assert redacted(text) == shown


def test_secrets_of_the_environment_are_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, f"{value}\n")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "user:pass%2Fword@host:9000")
    monkeypatch.setenv("https_proxy", "http://me:proxy-word@proxy:3128")
    text = redacted(
        "'a-secret-that-is-never-logged\\n' a%2Ftoken%2Bthat%3Dis-never-logged user:pass%2Fword@host "
        "pass/word proxy-word"
    )
    assert text == "'***\\n' *** ***@host *** ***"
    assert "ya29" not in str(OriginError("ya29.never-logged"))
