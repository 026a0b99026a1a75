"""One object over HTTP from a real server, of S3 and of Google Cloud Storage, with what can happen on the way."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import random
import threading
from pathlib import Path

import pytest

from hcfs import origin
from hcfs.options.schemes import SCHEMES, load
from hcfs.origin import (
    Listed,
    NotAtOrigin,
    OriginChanged,
    OriginClient,
    OriginError,
    OriginRefused,
    Patience,
    WrongContent,
    open_origin,
    transfer,
)
from hcfs.origin.object_store import ObjectStoreClient
from lab.harness.origins.server import Asked, Fault, OriginServer

CONTENT = random.Random(6).randbytes(3_000_001)
KEY = "transfer/a b%20~é+&#.bin"


def client(server: OriginServer) -> ObjectStoreClient:
    return ObjectStoreClient(server.url("transfer"))


def listed(server: OriginServer, content: bytes = CONTENT) -> Listed:
    server.put(KEY, content)
    (found,) = [each for page in client(server).list() for each in page]
    server.asked.clear()
    return found


def patience() -> Patience:
    return Patience(threading.Event(), attempts=4, pause_s=0.01)


def content(server: OriginServer, each: Listed, *, md5: bool = True) -> bytes:
    return b"".join(transfer(client(server), each, patience(), md5=md5))


def objects_only(fault: Fault, times: int) -> object:
    return lambda asked, number: fault if not asked.lists and number < times else None


def test_whole_and_with_a_name_full_of_odd_characters(server: OriginServer) -> None:
    each = listed(server)
    assert (each.key, each.size) == (KEY.removeprefix("transfer/"), len(CONTENT))
    assert content(server, each) == CONTENT
    assert len(server.asked) == 1
    server.fresh()
    assert content(server, listed(server, b"")) == b""
    assert len(server.asked) == 1  # also for no bytes: it may be gone by now


@pytest.mark.parametrize(
    "fault",
    [Fault(status=503), Fault(status=500), Fault(cut_after=0), Fault(cut_after=1_000_000)],
    ids=["503", "500", "cut at once", "cut in the middle"],
)
def test_errors_are_survived(server: OriginServer, fault: Fault) -> None:
    each = listed(server)
    server.faults = objects_only(fault, 3)
    assert content(server, each) == CONTENT
    assert len(server.asked) == 4


def test_what_came_is_not_asked_for_again(server: OriginServer) -> None:
    each = listed(server)
    server.faults = objects_only(Fault(cut_after=1_000_000), 2)
    assert content(server, each) == CONTENT
    starts = [int((asked.range or "bytes=0-").removeprefix("bytes=").split("-")[0]) for asked in server.asked]
    assert starts[0] == 0
    assert 0 < starts[1] <= 1_000_000 < starts[2] <= 2_000_000


def test_errors_without_end(server: OriginServer) -> None:
    each = listed(server)
    server.faults = objects_only(Fault(status=503), 1000)
    with pytest.raises(OriginError, match="503"):
        content(server, each)
    assert len(server.asked) == 4


def test_wrong_bytes_are_found(server: OriginServer) -> None:
    each = listed(server)
    server.faults = objects_only(Fault(flip=1_234_567), 1)
    with pytest.raises(WrongContent, match="MD5"):
        content(server, each)
    server.fresh()
    server.faults = objects_only(Fault(flip=1_234_567), 1)
    assert content(server, each, md5=False) != CONTENT  # what origin_check=length can't see


def test_other_content_by_now(server: OriginServer) -> None:
    each = listed(server)
    server.put(KEY, CONTENT[::-1])
    with pytest.raises(OriginChanged):
        content(server, each)
    assert [asked.headers["if-match"] for asked in server.asked] == [each.etag]
    server.faults = lambda *_: Fault(status=412)  # as a server says it that looks at If-Match
    with pytest.raises(OriginChanged):
        content(server, each)
    server.fresh()
    server.delete(KEY)
    with pytest.raises(NotAtOrigin):
        content(server, each)


def test_what_came_is_not_continued_with_other_content(server: OriginServer) -> None:
    each = listed(server)
    server.faults = objects_only(Fault(cut_after=1_000_000), 1)
    chunks = transfer(client(server), each, patience(), md5=False)
    came = next(chunks)
    while not came:
        came = next(chunks)
    assert came == CONTENT[: len(came)]
    server.put(KEY, CONTENT[::-1])
    got = bytearray(came)
    with pytest.raises(OriginChanged):
        list(map(got.extend, chunks))
    assert len(server.asked) == 2
    assert got == CONTENT[: len(got)]


def test_a_refusal_is_final_and_tells_no_secret(server: OriginServer) -> None:
    each = listed(server)
    server.faults = lambda *_: Fault(status=403)
    with pytest.raises(OriginRefused) as refused:
        content(server, each)
    assert not [secret for secret in server.secrets if secret in str(refused.value)]
    assert len(server.asked) == 1
    with pytest.raises(OriginError) as refused:
        list(client(server).list())
    assert not [secret for secret in server.secrets if secret in str(refused.value)]


def test_an_origin_that_is_not_there_lists_no_empty_directory(server: OriginServer) -> None:
    with pytest.raises(OriginError):
        list(ObjectStoreClient(f"{server.scheme}://no-such-bucket/x").list())


def test_a_directory_that_is_not_there_is_no_empty_one() -> None:
    with pytest.raises(OriginError, match="no such directory"):
        list(open_origin("/no/such/directory").list())


def test_a_file_that_is_written_while_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(CONTENT)
    directory = open_origin(str(tmp_path))
    ((each,),) = directory.list()
    chunks = transfer(directory, each, patience(), md5=True)
    next(chunks)
    with open(tmp_path / "model", "r+b") as file:
        file.seek(2_000_000)
        file.write(b"other bytes")
    with pytest.raises(OriginChanged):
        list(chunks)


def test_the_end_of_the_mount_ends_a_pause(server: OriginServer) -> None:
    each = listed(server)
    server.faults = objects_only(Fault(status=503), 1000)
    stop = threading.Event()
    stop.set()
    with pytest.raises(OriginError):
        list(transfer(client(server), each, Patience(stop, pause_s=3600), md5=True))


def test_a_client_has_no_way_to_write() -> None:
    """Local-only by structure: what reads an origin can list and fetch, and only the writers that the kinds of origins
    name can send."""
    public = {name for name, _ in inspect.getmembers(OriginClient) if not name.startswith("_")}
    assert public == {"list", "fetch"}
    for client in (load(scheme.client) for scheme in SCHEMES):
        # `problem` says why nothing can be asked, and asks nobody.
        assert {name for name in dir(client) if not name.startswith("_")} in (public, public | {"problem"})
    names = {each.name for each in pkgutil.iter_modules(origin.__path__, "hcfs.origin.")}
    modules = {name: importlib.import_module(name) for name in names}
    writers = {scheme.writer.partition(":")[0] for scheme in SCHEMES if scheme.writer is not None}
    sending = "".join(inspect.getsource(modules.pop(name)) for name in writers)
    assert "obstore.put" in sending
    assert "O_CREAT" in sending
    sources = "".join(map(inspect.getsource, modules.values()))
    assert "obstore.get" in sources
    for word in ("put", "copy", "rename", "delete", "open_writer", "sign"):
        assert f"obstore.{word}" not in sources
        assert f").{word}(" not in sources
    for word in ("O_WRONLY", "O_RDWR", "O_CREAT", "os.write", "os.rename", "os.unlink", "os.mkdir", "os.truncate"):
        assert word not in sources


def test_asked_is_what_was_asked(server: OriginServer) -> None:
    """The recorder sees requests: what it doesn't record wasn't sent."""
    listed(server)
    list(client(server).list())
    assert [(asked.method, asked.lists) for asked in server.asked] == [("GET", True)]
    assert isinstance(server.asked[0], Asked)
