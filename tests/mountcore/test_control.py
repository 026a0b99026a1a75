"""The control file: who may use it, what is answered, and what isn't a command."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mountcore.kernel import Process, Rig, errno_of, eventually

from hcfs.daemon.administration import Administration
from hcfs.daemon.scrubbing import Scrubbing
from hcfs.daemon.status import StatusReport
from hcfs.device import BufferPool
from hcfs.errors import HcfsError
from hcfs.filesystem.calls import Caller
from hcfs.filesystem.places.control import AT_ONCE, COMMAND_MAX, Answer, Command, Control
from hcfs.filesystem.places.virtual_handles import ControlHandle
from hcfs.options.mount_options import MountOptions
from hcfs.store import ROOT_ID


class Desk:
    """Commands that wait, count, or fail, and a control over them."""

    def __init__(self) -> None:
        self.waiting = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.control = Control({"echo": self.echo, "wait": self.wait, "sleep": self.sleep, "fail": self.fail})

    def echo(self, command: Command) -> Answer:
        text = command.words.optional_text("text")
        command.words.end()
        return {"text": text}

    def wait(self, command: Command) -> Answer:
        self.waiting.release()
        while not command.stopped() and not self.go_on.wait(0.005):
            pass
        return {"stopped": command.stopped()}

    def sleep(self, command: Command) -> Answer:
        self.waiting.release()
        command.wait(1e6)
        return {"stopped": command.stopped()}

    def fail(self, command: Command) -> Answer:
        raise ZeroDivisionError

    def ask(self, **words: Any) -> dict[str, Any]:
        answer = json.loads(self.control.execute(json.dumps(words).encode())[0])
        assert isinstance(answer, dict)
        return answer


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.control.end()
    desk.go_on.set()


def in_threads(count: int, call: Callable[[], Any]) -> tuple[list[Any], list[threading.Thread]]:
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(call())) for _ in range(count)]
    for thread in threads:
        thread.start()
    return answers, threads


@pytest.mark.parametrize(
    "command",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'"evict"',
        b"{}",
        b"[" * 60_000,
        b'{"command": 1}',
        b'{"command": "unknown"}',
        b'{"command": "echo", "more": 1}',
        b'{"command": "echo", "text": []}',
        b'{"command": "echo", "id": 5}',
        b" " * (COMMAND_MAX + 1),
    ],
)
def test_what_is_no_command(desk: Desk, command: bytes) -> None:
    answer, code = desk.control.execute(command)
    told = json.loads(answer)
    assert os.strerror(code) == "Invalid argument"
    assert set(told) == {"error", "errno"}
    assert told["errno"] == "EINVAL"
    assert len(answer) < 1000
    assert desk.ask(command="echo", text="a") == {"text": "a"}


def test_a_bug_is_answered_too(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    told = desk.ask(command="fail")
    assert told["errno"] == "EIO"
    assert "ZeroDivisionError" in told["error"]
    assert "failed unexpectedly" in caplog.text
    caplog.clear()


def test_a_command_is_stopped_by_its_id(desk: Desk) -> None:
    for kind in ("wait", "sleep"):
        answers, threads = in_threads(1, lambda kind=kind: desk.ask(command=kind, id="x"))  # type: ignore[misc]
        desk.waiting.acquire(timeout=10)
        assert "running already" in desk.ask(command="echo", id="x")["error"]
        assert desk.ask(command="stop", id="y") == {"stopped": False}
        assert desk.ask(command="stop") == {"stopped": False}
        assert desk.ask(command="stop", id="x") == {"stopped": True}
        threads[0].join(10)
        assert answers == [{"stopped": True}]
        assert desk.ask(command="stop", id="x") == {"stopped": False}


def answer_of(handle: ControlHandle) -> dict[str, Any]:
    eventually(lambda: errno_of(handle.read, 0, 0) == "ok", "its answer")
    answer = json.loads(handle.read(0, 4096))
    assert isinstance(answer, dict)
    return answer


def test_a_command_that_is_only_begun(desk: Desk) -> None:
    """Its write returns; its answer comes to a read when it is done; closing the handle ends it."""
    handle = ControlHandle(desk.control)
    for _ in range(2):
        handle.write(0, b'{"command": "wait", "later": true, "id": "x"}', drops_privileges=False)
        assert desk.waiting.acquire(timeout=10)
        assert errno_of(handle.read, 0, 4096) == "EAGAIN"
        assert errno_of(handle.write, 0, b'{"command": "echo"}', drops_privileges=False) == "EBUSY"
        assert desk.ask(command="stop", id="x") == {"stopped": True}
        eventually(lambda: not desk.control.under_way(), "it has ended")
        assert answer_of(handle) == {"stopped": True}
        assert handle.read(0, 4096) == b""
    handle.write(0, b'{"command": "nothing", "later": true}', drops_privileges=False)
    assert answer_of(handle)["errno"] == "EINVAL"
    handle.write(0, b'{"command": "sleep", "later": true, "id": "y"}', drops_privileges=False)
    assert desk.waiting.acquire(timeout=10)
    handle.release()
    eventually(lambda: not desk.control.under_way(), "it has ended")
    ControlHandle(desk.control).write(0, b'{"command": "sleep", "later": true, "id": "z"}', drops_privileges=False)
    assert desk.waiting.acquire(timeout=10)
    desk.control.close()
    assert desk.control.under_way() == []


def test_commands_leave_threads_for_others(desk: Desk) -> None:
    answers, threads = in_threads(AT_ONCE, lambda: desk.ask(command="wait"))
    for _ in threads:
        assert desk.waiting.acquire(timeout=10)
    assert desk.ask(command="echo")["errno"] == "EBUSY"
    assert desk.ask(command="stop", id="x") == {"stopped": False}
    desk.go_on.set()
    for thread in threads:
        thread.join(10)
    assert answers == [{"stopped": False}] * AT_ONCE
    assert desk.ask(command="echo") == {"text": None}


def test_the_end_of_the_mount_ends_commands(desk: Desk) -> None:
    answers, threads = in_threads(1, lambda: desk.ask(command="sleep"))
    desk.waiting.acquire(timeout=10)
    desk.control.end()
    threads[0].join(10)
    assert answers == [{"stopped": True}]
    assert desk.ask(command="echo")["errno"] == "ESHUTDOWN"


# --- through the filesystem ------------------------------------------------------------------------------------------


@pytest.fixture
def control(rig: Rig, me: Process) -> int:
    """Inode of the file."""
    options = MountOptions.parse("lookup_grace=5")
    report = StatusReport(
        rig.fs,
        rig.device,
        BufferPool(1 << 20),
        options,
        source="/dev/x",
        directory="/mnt/x",
        scrubbing=Scrubbing(rig.fs),
    )
    rig.fs.parts.show(report.tree(), Control(Administration(rig.fs, Scrubbing(rig.fs), None).commands()))
    return me.lookup(b"control", me.lookup(b".hcfs", ROOT_ID).ino).ino


def test_who_may_open_it(rig: Rig, control: int) -> None:
    owner, stranger, root = Caller(0, 77, 5), Caller(0, 78, 5), Caller(0, 0, 0)
    rig.store.set_attributes(ROOT_ID, uid=77, gid=5)
    attributes = rig.fs.getattr(control).attributes
    assert attributes is not None
    assert (oct(attributes.mode), attributes.uid, attributes.gid) == ("0o100600", 77, 5)
    for caller in (owner, root):
        assert errno_of(rig.fs.open, control, os.O_RDWR, caller) == "ok"
        for flags in (os.O_RDONLY, os.O_WRONLY):
            assert errno_of(rig.fs.open, control, flags, caller) == "EACCES"
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        assert errno_of(rig.fs.open, control, flags, stranger) == "EPERM"


def test_a_handle_speaks_and_answers(rig: Rig, me: Process, control: int) -> None:
    me.put(b"a", bytes(5000))
    rig.cache.namespaces.usage(rig.kv)
    opened = rig.fs.open(control, os.O_RDWR, me.caller)
    assert not isinstance(opened, HcfsError)
    handle = opened.handle  # type: ignore[union-attr]
    assert me.read(handle) == b""
    command = json.dumps({"command": "evict", "namespace": "kv"}).encode()
    assert me.write(handle, command, offset=12345) == len(command)
    answer = b""
    while part := me.read(handle, 7):
        answer += part
    assert json.loads(answer)["freed_bytes"] == 8192
    assert me.read(handle) == b""
    assert not me.exists(b"a")
    for wrong in ("", "absent", "kv/a", "..", ".hcfs", "\udcff", "\ud800", "x" * 5000):
        words = json.dumps({"command": "evict", "namespace": wrong}).encode()
        assert errno_of(me.write, handle, words) == "EINVAL"
        assert "no namespace" in json.loads(me.read(handle))["error"]
    for words in (b'{"command": "evict", "namespace": "kv", "bytes": -1}', b'{"command": "evict"}', b"{"):
        assert errno_of(me.write, handle, words) == "EINVAL"
        assert "error" in json.loads(me.read(handle))
    me.close(handle)


def test_a_read_only_store_refuses(rig: Rig, me: Process, control: int) -> None:
    me.put(b"a", b"1")
    rig.store.ledger.state = "read-only"
    handle = rig.fs.open(control, os.O_RDWR, me.caller).handle  # type: ignore[union-attr]
    assert errno_of(me.write, handle, b'{"command": "evict", "namespace": "kv"}') == "EROFS"
    assert "read-only" in json.loads(me.read(handle))["error"]
    assert me.exists(b"a")
