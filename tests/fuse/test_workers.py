"""Threads that serve a connection: order, lanes, errors, ends; the kernel is a socket here."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator

import pytest
from fuse.kernel import Kernel, waiting_for

from hcfs.fuse.lanes import Lane, Parked
from hcfs.fuse.protocol import IN_HEADER, OUT_HEADER, READ_IN, WRITE_IN, Opcode
from hcfs.fuse.request import FORWARD, Request
from hcfs.fuse.workers import Handler, Route
from lab.harness.actors import eventually

MIB = 1 << 20


@pytest.fixture
def make() -> Iterator[Callable[..., Kernel]]:
    made: list[Kernel] = []

    def kernel(routes: dict[int, Handler | Route], **more: int) -> Kernel:
        made.append(Kernel(routes, **more))
        return made[-1]

    yield kernel
    for each in made:
        each.close()


def write_body(data: bytes) -> bytes:
    return WRITE_IN.pack(1, 0, len(data), 0, 0, 0, 0) + data


def test_answers_and_errors(make: Callable[..., Kernel]) -> None:
    def fails(_: Request) -> bytes:
        raise RuntimeError("a bug")

    routes = {Opcode.LOOKUP: lambda request: request.body.upper(), Opcode.GETATTR: lambda _: errno.ENOENT, 5: fails}
    kernel = make(routes)
    assert kernel.ask(Opcode.LOOKUP, b"name\0") == (0, b"NAME\0")
    assert kernel.ask(Opcode.GETATTR) == (errno.ENOENT, b"")
    assert kernel.ask(Opcode.LOOKUP, b"x" * 5000) == (0, b"X" * 5000)
    assert kernel.ask(5) == (5, b"")
    assert [str(failure) for failure in kernel.failures] == ["a bug"]
    assert kernel.ask(Opcode.LOOKUP, b"still here") == (0, b"STILL HERE")


def test_what_has_no_answer_gets_none(make: Callable[..., Kernel]) -> None:
    """An answer to FORGET or INTERRUPT would be taken for another's; FORGETs reach nobody."""
    kernel = make({Opcode.LOOKUP: lambda _: b"x"})
    for opcode in (Opcode.FORGET, Opcode.BATCH_FORGET, Opcode.INTERRUPT):
        kernel.send(opcode, b"\1" * 16)
    assert kernel.ask(Opcode.LOOKUP) == (0, b"x")
    assert kernel.silent()


def test_malformed_and_unknown_requests(make: Callable[..., Kernel]) -> None:
    """A length that isn't the message's is EIO, here; an opcode that nobody knows is libfuse's to refuse."""
    kernel = make({Opcode.LOOKUP: lambda _: b"x"})
    assert kernel.ask(Opcode.LOOKUP, b"name\0", length=7) == (errno.EIO, b"")
    unique = kernel.send(4095, b"what")
    forwarded = kernel.bridge.library.recv(4096)
    assert IN_HEADER.unpack_from(forwarded)[1] == 4095
    assert forwarded[IN_HEADER.size :] == b"what"
    kernel.bridge.library.send(OUT_HEADER.pack(OUT_HEADER.size, -errno.ENOSYS, unique))
    assert kernel.answer() == (unique, errno.ENOSYS, b"")
    assert kernel.workers.forwarded[4095] == 1


def test_a_handler_may_forward(make: Callable[..., Kernel]) -> None:
    kernel = make({Opcode.GETXATTR: lambda _: FORWARD})
    body = bytes(range(200)) * 100
    kernel.send(Opcode.GETXATTR, body)
    assert kernel.bridge.library.recv(1 << 16)[IN_HEADER.size :] == body


def test_without_a_library_a_forwarded_request_is_refused(make: Callable[..., Kernel]) -> None:
    kernel = make({})
    kernel.bridge.library.close()
    assert kernel.ask(Opcode.MKDIR, b"x" * 8) == (errno.ENOTCONN, b"")


def test_data_of_writes_arrives_aligned_and_whole(make: Callable[..., Kernel]) -> None:
    seen = []

    def write(request: Request) -> bytes:
        assert request.payload is not None
        seen.append(bytes(request.payload))
        return b"done"

    kernel = make({Opcode.WRITE: Route(write, Lane(1))})
    for size in (0, 1, 4096, 100_001):
        data = bytes((size + at) % 251 for at in range(size))
        assert kernel.ask(Opcode.WRITE, write_body(data)) == (0, b"done")
        assert seen.pop() == data


def test_what_waits_stops_nobody_else(make: Callable[..., Kernel]) -> None:
    """More READs than their lane takes, and more WRITEs, wait; a LOOKUP, and a lane of its own, are served."""
    reads, writes, flushes = threading.Event(), threading.Event(), threading.Event()
    kernel = make(
        {
            Opcode.READ: Route(waiting_for(reads, b"read"), Lane(2)),
            Opcode.WRITE: Route(waiting_for(writes, b"written"), Lane(2)),
            Opcode.FLUSH: lambda _: lambda: waiting_for(flushes, b"flushed")(_),
            Opcode.LOOKUP: lambda _: b"x",
        },
        payloads=8,
    )
    waiting = {kernel.send(Opcode.READ, READ_IN.pack(1, 0, 1, 0, 0, 0, 0)): b"read" for _ in range(10)}
    waiting |= {kernel.send(Opcode.WRITE, write_body(b"abc")): b"written" for _ in range(6)}
    waiting |= {kernel.send(Opcode.FLUSH, b"f" * 24): b"flushed" for _ in range(5)}
    for _ in range(5):
        assert kernel.ask(Opcode.LOOKUP) == (0, b"x")
    for event in (flushes, writes, reads):
        event.set()
    answers = [kernel.answer() for _ in waiting]
    assert {unique: body for unique, _, body in answers} == waiting


def test_buffers_that_are_used_up_hold_up_and_lose_nothing(make: Callable[..., Kernel]) -> None:
    go = threading.Event()
    kernel = make({Opcode.WRITE: Route(waiting_for(go, b"written"), Lane(1))}, payloads=3)
    sent = {kernel.send(Opcode.WRITE, write_body(b"abc")) for _ in range(20)}
    assert kernel.silent()
    assert kernel.payloads.bytes_made == 3 * MIB
    go.set()
    assert {kernel.answer()[0] for _ in sent} == sent


def test_memory_operations_keep_their_order(make: Callable[..., Kernel]) -> None:
    """Also when jobs between them make the threads take turns."""
    order: list[int] = []
    kernel = make(
        {
            Opcode.RELEASE: lambda request: (order.append(request.unique), b"")[1],
            Opcode.READ: Route(lambda _: b"x", Lane(3)),
        }
    )
    sent = []
    for number in range(600):
        if number % 3:
            kernel.send(Opcode.READ, READ_IN.pack(1, 0, 1, 0, 0, 0, 0))
        else:
            sent.append(kernel.send(Opcode.RELEASE, b"r" * 24))
        if number % 50 == 49:
            for _ in range(50):
                kernel.answer()
    assert order == sent


def test_without_memory_for_threads_those_that_there_are_serve_everything(
    make: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A job that waited for a thread that never starts would hang its caller for ever."""
    kernel = make({Opcode.READ: Route(lambda _: b"read", Lane(4)), Opcode.LOOKUP: lambda _: b"x"})
    assert kernel.ask(Opcode.LOOKUP) == (0, b"x")

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(20):
        assert kernel.ask(Opcode.READ, READ_IN.pack(1, 0, 1, 0, 0, 0, 0)) == (0, b"read")
        assert kernel.ask(Opcode.LOOKUP) == (0, b"x")
    monkeypatch.undo()
    assert [record.message for record in caplog.records if "no more can be started" in record.message]
    caplog.clear()


def test_finish_waits_for_what_was_begun(make: Callable[..., Kernel]) -> None:
    go = threading.Event()
    kernel = make({Opcode.READ: Route(waiting_for(go, b"read"), Lane(1))})
    sent = {kernel.send(Opcode.READ, READ_IN.pack(1, 0, 1, 0, 0, 0, 0)) for _ in range(3)}
    while kernel.workers.served[Opcode.READ] < 3:
        pass
    finishing = threading.Thread(target=kernel.workers.finish)
    finishing.start()
    finishing.join(0.1)
    assert finishing.is_alive()
    go.set()
    finishing.join(10)
    assert not finishing.is_alive()
    assert {kernel.answer()[0] for _ in sent} == sent


def test_parked_requests(make: Callable[..., Kernel]) -> None:
    """More than the lane has places: none holds one, and each is asked again when its time has come, then or before it
    was even parked. The end answers those that are left."""
    calls: dict[bytes, list[Callable[[], None]]] = {}
    ready: set[bytes] = {b"now"}

    def read(request: Request) -> bytes | Parked:
        if request.body in ready:
            return request.body
        waiting = calls.setdefault(request.body, [])
        if request.body == b"at once" and not waiting:
            ready.add(request.body)
            return Parked(lambda call_back: (waiting.append(call_back), call_back())[1])
        return Parked(waiting.append)

    lane = Lane(2)
    kernel = make({Opcode.READ: Route(read, lane), Opcode.LOOKUP: lambda _: b"x"})
    parked = [kernel.send(Opcode.READ, b"%d" % number) for number in range(50)]
    assert kernel.ask(Opcode.LOOKUP) == (0, b"x")
    assert kernel.ask(Opcode.READ, b"now") == (0, b"now")
    assert kernel.ask(Opcode.READ, b"at once") == (0, b"at once")
    eventually(lambda: len(calls) == 51, "all are parked")
    for call in calls[b"7"] * 2:  # asked too early, and twice
        call()
    eventually(lambda: len(calls[b"7"]) == 2, "it is parked again")
    ready.add(b"7")
    calls[b"7"][-1]()
    assert kernel.answer() == (parked[7], 0, b"7")
    threading.Thread(target=kernel.workers.finish).start()
    left = {kernel.answer()[:2] for _ in range(49)}
    assert left == {(unique, errno.EIO) for unique in parked if unique != parked[7]}
    for waiting in calls.values():
        for call in waiting:
            call()
    assert kernel.silent()


class Panic(BaseException):
    """No Exception, as what libraries written in Rust raise."""


@pytest.mark.parametrize("kind", [RuntimeError, Panic, KeyboardInterrupt, SystemExit])
def test_whatever_is_raised_becomes_an_answer(make: Callable[..., Kernel], kind: type[BaseException]) -> None:
    """From a handler, from what it left to do, from a lane, and from what keeps a request for later."""

    def fails(_: object = None) -> bytes:
        raise kind("a fault")

    lane = Lane(1)
    routes = {
        Opcode.LOOKUP: Route(fails),
        Opcode.GETATTR: Route(lambda _: fails),
        Opcode.READ: Route(fails, lane),
        Opcode.WRITE: Route(fails, Lane(1)),
        Opcode.OPEN: Route(lambda _: Parked(fails), Lane(1)),  # type: ignore[arg-type]  # it fails before it is called back
        Opcode.FLUSH: Route(lambda _: b"x"),
    }
    kernel = make(routes)
    for _ in range(3):
        for opcode in (Opcode.LOOKUP, Opcode.GETATTR, Opcode.READ, Opcode.OPEN):
            assert kernel.ask(opcode, b"name\0") == (errno.EIO, b"")
        assert kernel.ask(Opcode.WRITE, write_body(b"data")) == (errno.EIO, b"")
        assert kernel.ask(Opcode.FLUSH) == (0, b"x")
    assert {type(failure) for failure in kernel.failures} == {kind}


def test_faults_of_the_threads_own_code_stop_nothing(
    make: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer of no such type, an errno that can't be told, a buffer that isn't taken back, a read that fails."""
    unfit: dict[int, Handler | Route] = {
        Opcode.LOOKUP: lambda _: {"no": "answer"},  # type: ignore[dict-item,return-value]  # just that
        Opcode.GETATTR: lambda _: 1 // 0,
        Opcode.WRITE: Route(lambda _: b"x", Lane(1)),
        Opcode.FLUSH: lambda _: b"x",
    }
    kernel = make(unfit, payloads=4)

    def fails(*_: object) -> int:
        raise Panic("a fault")

    assert kernel.ask(Opcode.LOOKUP, b"name\0") == (errno.EIO, b"")
    with monkeypatch.context() as patch:
        patch.setattr(kernel.workers, "_failed", fails)
        assert kernel.ask(Opcode.GETATTR) == (errno.EIO, b"")
        patch.setattr(kernel.payloads, "give", fails)
        assert kernel.ask(Opcode.WRITE, write_body(b"data")) == (0, b"x")
        patch.undo()
    with monkeypatch.context() as patch:
        patch.setattr(kernel.connection, "receive", fails)
        unique = kernel.send(Opcode.FLUSH)  # the read that is under way may still be the real one
        eventually(lambda: "the thread that reads requests failed" in caplog.text, "a read has failed")
    assert kernel.answer() == (unique, 0, b"x")
    for _ in range(3):
        assert kernel.ask(Opcode.WRITE, write_body(b"data")) == (0, b"x")
        assert kernel.ask(Opcode.FLUSH) == (0, b"x")
    assert "Panic: a fault" in caplog.text
