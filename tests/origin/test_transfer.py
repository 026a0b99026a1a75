"""One object over HTTP from a real S3 server, with what can happen on the way."""

from __future__ import annotations

import inspect
import random
import threading
from pathlib import Path

import pytest
from harness.s3 import BUCKET, S3, SECRET, Asked, Fault

from hcfs import origin
from hcfs.origin import (
    Listed,
    NotAtOrigin,
    ObjectStoreClient,
    OriginChanged,
    OriginClient,
    OriginError,
    OriginRefused,
    Patience,
    WrongContent,
    transfer,
)

CONTENT = random.Random(6).randbytes(3_000_001)
KEY = "transfer/a b%20~é+&#.bin"


def client(prefix: str = "transfer") -> ObjectStoreClient:
    return ObjectStoreClient(f"s3://{BUCKET}/{prefix}")


def listed(s3: S3, content: bytes = CONTENT) -> Listed:
    s3.put(KEY, content)
    (found,) = [each for page in client().list() for each in page]
    s3.asked.clear()
    return found


def patience() -> Patience:
    return Patience(threading.Event(), attempts=4, pause_s=0.01)


def content(each: Listed, *, md5: bool = True) -> bytes:
    return b"".join(transfer(client(), each, patience(), md5=md5))


def objects_only(fault: Fault, times: int) -> object:
    return lambda asked, number: fault if not asked.lists and number < times else None


def test_whole_and_with_a_name_full_of_odd_characters(s3: S3) -> None:
    each = listed(s3)
    assert (each.key, each.size) == (KEY.removeprefix("transfer/"), len(CONTENT))
    assert content(each) == CONTENT
    assert len(s3.asked) == 1
    assert content(listed(s3, b"")) == b""
    assert s3.asked == []  # nothing has to be asked for no bytes


@pytest.mark.parametrize(
    "fault",
    [Fault(status=503), Fault(status=500), Fault(cut_after=0), Fault(cut_after=1_000_000)],
    ids=["503", "500", "cut at once", "cut in the middle"],
)
def test_errors_are_survived(s3: S3, fault: Fault) -> None:
    each = listed(s3)
    s3.faults = objects_only(fault, 3)
    assert content(each) == CONTENT
    assert len(s3.asked) == 4


def test_what_came_is_not_asked_for_again(s3: S3) -> None:
    each = listed(s3)
    s3.faults = objects_only(Fault(cut_after=1_000_000), 2)
    assert content(each) == CONTENT
    starts = [int((asked.range or "bytes=0-").removeprefix("bytes=").split("-")[0]) for asked in s3.asked]
    assert starts[0] == 0
    assert 0 < starts[1] <= 1_000_000 < starts[2] <= 2_000_000


def test_errors_without_end(s3: S3) -> None:
    each = listed(s3)
    s3.faults = objects_only(Fault(status=503), 1000)
    with pytest.raises(OriginError, match="503"):
        content(each)
    assert len(s3.asked) == 4


def test_wrong_bytes_are_found(s3: S3) -> None:
    each = listed(s3)
    s3.faults = objects_only(Fault(flip=1_234_567), 1)
    with pytest.raises(WrongContent, match="MD5"):
        content(each)
    s3.fresh()
    s3.faults = objects_only(Fault(flip=1_234_567), 1)
    assert content(each, md5=False) != CONTENT  # what origin_check=length can't see


def test_other_content_by_now(s3: S3) -> None:
    each = listed(s3)
    s3.put(KEY, CONTENT[::-1])
    with pytest.raises(OriginChanged):
        content(each)
    s3.delete(KEY)
    with pytest.raises(NotAtOrigin):
        content(each)


def test_a_refusal_is_final_and_tells_no_secret(s3: S3) -> None:
    each = listed(s3)
    s3.faults = lambda *_: Fault(status=403)
    with pytest.raises(OriginRefused) as refused:
        content(each)
    assert SECRET not in str(refused.value)
    assert len(s3.asked) == 1
    with pytest.raises(OriginError) as refused:
        list(client().list())
    assert SECRET not in str(refused.value)


def test_an_origin_that_is_not_there_lists_no_empty_directory(s3: S3) -> None:
    with pytest.raises(OriginError):
        list(ObjectStoreClient("s3://no-such-bucket/x").list())
    with pytest.raises(OriginError, match="no such directory"):
        list(ObjectStoreClient("/no/such/directory").list())


def test_a_file_that_is_written_while_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(CONTENT)
    directory = ObjectStoreClient(str(tmp_path))
    ((each,),) = directory.list()
    chunks = transfer(directory, each, patience(), md5=True)
    next(chunks)
    with open(tmp_path / "model", "r+b") as file:
        file.seek(2_000_000)
        file.write(b"other bytes")
    with pytest.raises(OriginChanged):
        list(chunks)


def test_the_end_of_the_mount_ends_a_pause(s3: S3) -> None:
    each = listed(s3)
    s3.faults = objects_only(Fault(status=503), 1000)
    stop = threading.Event()
    stop.set()
    with pytest.raises(OriginError):
        list(transfer(client(), each, Patience(stop, pause_s=3600), md5=True))


def test_a_client_has_no_way_to_write(s3: S3) -> None:
    """Local-only by structure: what reads an origin can list and fetch, and one module alone can send."""
    public = {name for name, _ in inspect.getmembers(OriginClient) if not name.startswith("_")}
    assert public == {"list", "fetch"}
    assert {name for name in dir(ObjectStoreClient) if not name.startswith("_")} == public
    modules = dict(inspect.getmembers(origin, inspect.ismodule))
    sending = modules.pop("uploader")
    assert "obstore.put" in inspect.getsource(sending)
    sources = "".join(map(inspect.getsource, modules.values()))
    assert "obstore.get" in sources
    for word in ("put", "copy", "rename", "delete", "open_writer", "sign"):
        assert f"obstore.{word}" not in sources
        assert f").{word}(" not in sources


def test_asked_is_what_was_asked(s3: S3) -> None:
    """The recorder sees requests: what it doesn't record wasn't sent."""
    listed(s3)
    list(client().list())
    assert [(asked.method, asked.lists) for asked in s3.asked] == [("GET", True)]
    assert isinstance(s3.asked[0], Asked)
