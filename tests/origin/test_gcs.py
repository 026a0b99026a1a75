"""What is particular to Google Cloud Storage: pages, ETags, unpacked objects, credentials, and generations."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hcfs.origin import Listed, OriginError, Patience, WrongContent, transfer
from hcfs.origin.object_store import ObjectStoreClient
from hcfs.origin.transfer import md5_of
from lab.harness.actors import errno_of, load, store
from lab.harness.mounts import Mount
from lab.harness.origins.clients import content, namespace, origin_status
from lab.harness.origins.gcs import PAGE, TOKEN, Gcs
from lab.harness.origins.server import Answer, Asked, Fault


def listed(gcs: Gcs, prefix: str) -> list[Listed]:
    return [each for page in ObjectStoreClient(gcs.url(prefix)).list() for each in page]


def fetched(gcs: Gcs, prefix: str, each: Listed) -> bytes:
    patience = Patience(threading.Event(), attempts=2, pause_s=0.01)
    return b"".join(transfer(ObjectStoreClient(gcs.url(prefix)), each, patience, md5=True))


def test_a_listing_of_several_pages(gcs: Gcs) -> None:
    names = {f"d{number % 7}/{number}" for number in range(2 * PAGE + 1)}
    for name in names:
        gcs.put(f"pages/{name}", b"x")
    gcs.put("pages-beside/f", b"x")
    assert {each.key for each in listed(gcs, "pages")} == names
    assert ["continuation-token" in asked.query for asked in gcs.asked] == [False, True, True]


def test_an_etag_that_is_no_md5(gcs: Gcs) -> None:
    """As of an object that was composed: its length is checked, and that it is all of the one that was listed. Listed
    without quotes, as this server does, it is the same."""
    pieces = [content("one"), content("two")]
    gcs.put_composed("composed/model", pieces)
    (each,) = listed(gcs, "composed")
    assert md5_of(each.etag) is None
    gcs.asked.clear()
    assert fetched(gcs, "composed", each) == b"".join(pieces)
    assert [asked.headers["if-match"] for asked in gcs.asked] == [each.etag]
    gcs.faults = lambda asked, number: Fault(cut_after=300_000) if number == 0 else None
    assert fetched(gcs, "composed", each) == b"".join(pieces)
    gcs.fresh()
    gcs.put("composed/model", b"".join(pieces))
    (whole,) = listed(gcs, "composed")
    assert md5_of(whole.etag) is not None
    gcs.faults = lambda *_: Fault(flip=1_000_000)
    with pytest.raises(WrongContent, match="MD5"):
        fetched(gcs, "composed", whole)


def test_an_object_that_is_unpacked_on_the_way_is_refused(shared: Mount, gcs: Gcs) -> None:
    """Of one stored with Content-Encoding: gzip, other bytes are sent than are listed."""
    weights, prefix = namespace(shared, gcs, {"plain": b"plain"})
    gcs.put(f"{prefix}/packed", gzip.compress(content("packed")), encoding="gzip")
    assert errno_of(load, weights / "packed") == "EIO"
    assert "non-partial response" in origin_status(shared, weights)["last_error"]
    assert load(weights / "plain") == b"plain"


def role(gcs: Gcs, _: Path) -> dict[str, str]:
    """The machine's service account, whose token a server of the platform hands out."""
    return {"GCE_METADATA_HOST": gcs.address}


def key_file(gcs: Gcs, directory: Path) -> dict[str, str]:
    (directory / "key.json").write_text(key(gcs))
    return {"GOOGLE_SERVICE_ACCOUNT": str(directory / "key.json"), "GOOGLE_BASE_URL": ""}


def key_text(gcs: Gcs, _: Path) -> dict[str, str]:
    return {"GOOGLE_SERVICE_ACCOUNT_KEY": key(gcs), "GOOGLE_BASE_URL": ""}


def key(gcs: Gcs) -> str:
    """Of a service account that asks nobody for a token, as the library has it for servers in tests."""
    account = {"client_email": "a@b", "private_key": TOKEN, "private_key_id": TOKEN}
    return json.dumps(account | {"gcs_base_url": gcs.endpoint, "disable_oauth": True})


@pytest.mark.parametrize("way", [role, key_file, key_text])
def test_where_credentials_come_from(
    gcs: Gcs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[[Gcs, Path], dict[str, str]]
) -> None:
    gcs.put("credentials/f", b"f")
    monkeypatch.delenv("GOOGLE_BEARER_TOKEN")
    for name, value in way(gcs, tmp_path).items():
        if value:
            monkeypatch.setenv(name, value)
        else:
            monkeypatch.delenv(name)
    (each,) = listed(gcs, "credentials")
    assert fetched(gcs, "credentials", each) == b"f"
    sent = {asked.headers.get("authorization", "") for asked in gcs.asked if asked.path.startswith("/models")}
    assert sent == ({f"Bearer {TOKEN}"} if way is role else {""})
    gcs.faults = lambda *_: Fault(status=403)
    with pytest.raises(OriginError) as refused:
        listed(gcs, "credentials")
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize("text", ['{"private_key": "SECRET", "client', '{"private_key": "SECRET"}', "SECRET"])
def test_a_key_that_is_none_is_not_said(gcs: Gcs, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.delenv("GOOGLE_BEARER_TOKEN")
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", text)
    with pytest.raises(OriginError, match="service account") as refused:
        listed(gcs, "key")
    assert "SECRET" not in str(refused.value)
    assert gcs.asked == []


def test_plain_http_is_asked_for(gcs: Gcs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_ALLOW_HTTP")
    with pytest.raises(OriginError):
        listed(gcs, "plain")
    assert gcs.asked == []


def test_an_upload_without_a_condition_is_not_made(shared: Mount, gcs: Gcs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody says which generation the content has that is to be replaced, as behind a proxy that drops it."""
    there, prefix = namespace(shared, gcs, {"f": b"former"}, write_policy="write-through")
    serve = gcs.serve

    def anonymous(asked: Asked, target: str, headers: dict[str, str], body: bytes) -> Answer:
        answer = serve(asked, target, headers, body)
        return answer._replace(headers={name: answer.headers[name] for name in answer.headers if "Gener" not in name})

    monkeypatch.setattr(gcs, "serve", anonymous)
    assert errno_of(store, there / "f", b"mine") == "EIO"
    assert gcs.get(f"{prefix}/f") == load(there / "f") == b"former"
    assert gcs.sent(prefix) == []
    assert "doesn't say its generation" in origin_status(shared, there)["last_error"]
    store(there / "new", b"new")
    assert gcs.get(f"{prefix}/new") == b"new"


def test_which_content_an_upload_replaces(shared: Mount, gcs: Gcs) -> None:
    """By its generation, of what had its ETag just before; 0 is none."""
    there, prefix = namespace(shared, gcs, {"f": b"former"}, write_policy="write-through")
    store(there / "f", b"mine")
    store(there / "new", b"new")
    conditions = [asked.headers["x-goog-if-generation-match"] for asked in gcs.sent(prefix)]
    assert int(conditions[0]) > 0
    assert conditions[1] == "0"
