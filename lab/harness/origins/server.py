"""A real server of objects on loopback, and a proxy before it that records what is asked and injects faults."""

from __future__ import annotations

import http.client
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

BUCKET = "models"


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one answer."""

    status: int = 0
    """Answered instead of the server's."""
    hold: threading.Event | None = None
    """Waited for before anything is answered."""
    hold_at: int | None = None
    """Waited for behind so many bytes of the body instead."""
    cut_after: int | None = None
    """Bytes of the body after which the connection ends."""
    flip: int | None = None
    """Byte of the body that is inverted."""
    lost: bool = False
    """The server does it, and nothing is answered."""
    slow: float = 0.0
    """Seconds between two pieces of 64 KiB."""


@dataclass
class Asked:
    """A request as it came."""

    method: str
    path: str
    """Decoded, without the query."""
    range: str | None
    headers: dict[str, str] = field(default_factory=dict)
    query: str = ""

    @property
    def lists(self) -> bool:
        return "list-type" in self.query


class Answer(NamedTuple):
    """What is answered."""

    status: int
    headers: dict[str, str]
    content: bytes


class OriginServer:
    """The server, one bucket in it, and the proxy. `faults` is asked for each request with its number for that path
    and method, from 0 on."""

    scheme: str
    """Of the URLs by which hcfs is told of it."""
    secrets: tuple[str, ...]
    """What a daemon must never say."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.asked: list[Asked] = []
        self.faults: Callable[[Asked, int], Fault | None] = lambda *_: None
        self._lock = threading.Lock()
        self._cuts = 0
        self._proxy = _Proxy(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._proxy.serve_forever, args=(0.05,), daemon=True).start()
        self.address = f"127.0.0.1:{self._proxy.server_address[1]}"
        self.endpoint = f"http://{self.address}"
        self._server = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                self.make_bucket()
                return
            except OSError:
                assert self._server.poll() is None, "the server ended"
                time.sleep(0.05)
        raise AssertionError("the server doesn't answer")

    def command(self) -> list[str]:
        """Runs the server at `port`, in the foreground."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """What a daemon's environment says of the server."""
        raise NotImplementedError

    def make_bucket(self) -> None:
        """OSError as long as the server doesn't answer."""
        raise NotImplementedError

    def put(self, key: str, content: bytes) -> None:
        """Store an object, past the proxy."""
        raise NotImplementedError

    def delete(self, key: str) -> None:
        """Remove an object, past the proxy."""
        raise NotImplementedError

    def get(self, key: str) -> bytes | None:
        """What is stored under a key; None for nothing. Past the proxy."""
        try:
            return self.ask("GET", self.content_path(key))
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return None

    def content_path(self, key: str) -> str:
        """Of the request for an object's bytes."""
        raise NotImplementedError

    def ask(
        self, method: str, path: str, body: bytes = b"", *, kind: str = "application/octet-stream", **headers: str
    ) -> bytes:
        """What the server answers past the proxy; HTTPError. kind: the body's; urllib says that it sends a form,
        otherwise, and a server reads it as one."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data=body, method=method, headers={"Content-Type": kind, **headers}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            content: bytes = answer.read()
            return content

    def keys(self, prefix: str) -> list[str]:
        """Keys below a prefix and a slash, without them. Past the proxy."""
        raise NotImplementedError

    def serve(self, asked: Asked, target: str, headers: dict[str, str], body: bytes) -> Answer:
        """The server's answer; target: path and query as they came."""
        upstream = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            upstream.request(asked.method, target, body or None, headers)
            answer = upstream.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            upstream.close()

    def url(self, prefix: str) -> str:
        """What hcfs is told, of the keys below a prefix."""
        return f"{self.scheme}://{BUCKET}/{prefix}"

    def sent(self, prefix: str) -> list[Asked]:
        """Requests that were to change something below a prefix."""
        return [
            asked for asked in list(self.asked) if asked.method not in ("GET", "HEAD") and f"/{prefix}/" in asked.path
        ]

    def gets(self, key: str) -> list[Asked]:
        """Requests for an object's bytes."""
        return [asked for asked in list(self.asked) if asked.path == f"/{BUCKET}/{key}" and asked.method == "GET"]

    def cut(self) -> None:
        """End what is being answered; it breaks off where it is."""
        self._cuts += 1

    def fresh(self) -> None:
        """Forget what was asked, and inject nothing."""
        self.asked.clear()
        self.faults = lambda *_: None

    def close(self) -> None:
        self._proxy.shutdown()
        self._proxy.server_close()
        self._server.terminate()
        self._server.wait()

    def _note(self, asked: Asked) -> Fault | None:
        with self._lock:
            before = sum(other.path == asked.path and other.method == asked.method for other in self.asked)
            self.asked.append(asked)
        return self.faults(asked, before)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def _serve(self) -> None:
                parts = urlsplit(self.path)
                headers = dict(self.headers.items())
                asked = Asked(self.command, unquote(parts.path), self.headers.get("Range"), headers, parts.query)
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                if len(body) < length:
                    self.close_connection = True  # whoever sent it has ended
                    return
                fault = server._note(asked) or Fault()
                if fault.hold is not None and fault.hold_at is None:
                    fault.hold.wait(120)
                if fault.status:
                    self._answer(fault.status, {}, b"<Error><Code>Injected</Code></Error>", fault)
                    return
                answer = server.serve(asked, self.path, headers, body)
                if fault.lost:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self._answer(*answer, fault)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

            def _answer(self, status: int, headers: dict[str, str], content: bytes, fault: Fault) -> None:
                if fault.flip is not None and fault.flip < len(content):
                    flipped = bytes([content[fault.flip] ^ 0xFF])
                    content = content[: fault.flip] + flipped + content[fault.flip + 1 :]
                self.send_response_only(status)
                for name, value in headers.items():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
                self.send_header("Content-Length", length)
                self.end_headers()
                if self.command == "HEAD":
                    return
                end = len(content) if fault.cut_after is None else fault.cut_after
                cuts = server._cuts
                for at in range(0, min(end, len(content)), 65536):
                    if fault.hold is not None and fault.hold_at is not None and at >= fault.hold_at:
                        fault.hold.wait(120)
                    if server._cuts != cuts:
                        end = 0
                        break
                    self.wfile.write(content[at : min(at + 65536, end)])
                    if fault.slow:
                        time.sleep(fault.slow)
                if end < len(content):
                    self.wfile.flush()
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)

        return Handler


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """A client that goes away in the middle is part of the tests."""
