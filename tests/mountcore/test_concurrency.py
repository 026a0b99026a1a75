"""The core called by many threads at once, as a data plane of threads would."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import threading
import time
from contextlib import ExitStack

from mountcore.kernel import Process, Rig, other_process

from hcfs.errors import HcfsError

NAMES = [b"n%d" % number for number in range(6)]
SECONDS = 3.0


def whole(content: bytes) -> bool:
    """Whether a content is one that `made` returned, all of it."""
    return content == b"" or hashlib.sha256(content[32:]).digest() == content[:32]


def made(chance: random.Random) -> bytes:
    body = chance.randbytes(chance.choice((1, 5000, 70_000, 300_000)))
    return hashlib.sha256(body).digest() + body


def store(client: Process, name: bytes, chance: random.Random) -> None:
    content = made(chance)
    target = name + b".tmp" if chance.random() < 0.7 else name
    handle = client.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        for at in range(0, len(content), 50_000):
            client.write(handle, content[at : at + 50_000], at)
    finally:
        client.close(handle)
    if target != name:
        client.rename(target, name)


def work(client: Process, chance: random.Random, until: float, wrong: list[object]) -> None:
    while time.monotonic() < until:
        name = chance.choice(NAMES)
        try:
            match chance.randrange(6):
                case 0 | 1:
                    store(client, name, chance)
                case 2:
                    client.unlink(name)
                case 3:
                    client.list()
                case _:
                    content = client.load(name)
                    if not whole(content):
                        wrong.append((name, len(content)))
        except (HcfsError, OSError) as error:
            # The kernel would have asked once more, or the name is gone since the look.
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                wrong.append(error)
        except Exception as error:
            wrong.append(error)


def test_every_read_is_of_one_whole_store(rig: Rig) -> None:
    wrong: list[object] = []
    with ExitStack() as stack:
        processes = [stack.enter_context(other_process()).pid for _ in range(4)]
        until = time.monotonic() + SECONDS
        # One thread a process: threads of one process share a version, and may spoil it for each other.
        threads = [
            threading.Thread(target=work, args=(rig.proc(pid), random.Random(pid), until, wrong)) for pid in processes
        ]
        for thread in threads:
            thread.start()
        while time.monotonic() < until:
            rig.usage_is_whole()
            rig.fs.parts.housekeeping.reap()
            rig.store.commit()
            time.sleep(0.01)
        for thread in threads:
            thread.join()
        assert wrong == []
        rig.fs.parts.housekeeping.abandon_all()
    assert len(rig.fs.handles) == 0
    assert rig.store.usage().staged == 0
    assert rig.store.counters.checksum_errors == 0
    reader = rig.proc()
    assert all(whole(reader.load(name)) for name in reader.list())
