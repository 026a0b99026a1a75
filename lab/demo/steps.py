"""What `tools/demo` shows, step by step, on an image file in a temporary directory."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from lab.demo.clients import Adapter, SystemCalls
from lab.harness import ended
from lab.harness.mounts import alive
from lab.harness.places import Place

HCFS = str(Path(sys.executable).with_name("hcfs"))
MIB = 1 << 20
BLOCK = 4096
CHUNKS, CHUNK_BYTES = 4, 8 * MIB


def say(text: str) -> None:
    """A heading for what comes next."""
    print(f"\n\033[1m== {text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)


def show(*command: str | Path) -> None:
    """Run a command as a user would, and show it with what it prints."""
    words = [HCFS if word == "hcfs" else str(word) for word in command]
    print("$", " ".join(map(str, command)), flush=True)
    subprocess.run(words, check=True)


def output(*command: str | Path) -> str:
    """What a command prints."""
    words = [HCFS if word == "hcfs" else str(word) for word in command]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def kill(pid: int) -> None:
    """SIGKILL, and wait for the end."""
    os.kill(pid, signal.SIGKILL)
    while alive(pid):
        time.sleep(0.01)


def flip_byte(image: Path, chunk: Path) -> None:
    """Flip one bit of a chunk where it lies in the image; its place is in the attribute user.hcfs.extents."""
    first = re.match(r"(\d+)\+(\d+)@(\d+)", os.getxattr(chunk, "user.hcfs.extents").decode())
    assert first is not None
    offset = int(first[3]) * BLOCK + 12345
    with image.open("r+b") as medium:
        medium.seek(offset)
        (byte,) = medium.read(1)
        medium.seek(offset)
        medium.write(bytes([byte ^ 1]))
        medium.flush()
        os.fsync(medium.fileno())
    print(f"{image.name}: byte {offset} was {byte:#04x} and is {byte ^ 1:#04x} now")


def client_for(spec: str) -> Adapter | SystemCalls:
    """LMCache's adapter where LMCache can be imported."""
    os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")  # the demo talks to nobody
    os.environ.setdefault("LMCACHE_LOG_LEVEL", "WARNING")
    try:
        return Adapter(spec)
    except ImportError:
        return SystemCalls(spec)


def check(client: Adapter | SystemCalls, chunks: dict[bytes, bytes], missing: set[bytes]) -> None:
    """Look up and load every chunk, say what came of each, and fail unless exactly `missing` are misses."""
    hashes = list(chunks)
    loaded = client.load(hashes, CHUNK_BYTES)
    for number, (chunk_hash, content) in enumerate(zip(hashes, loaded, strict=True)):
        result = "a miss" if content is None else "loaded" if content == chunks[chunk_hash] else "WRONG BYTES"
        print(f"chunk {number} ({chunk_hash.hex()[:8]}...): {result}")
        assert (content is None) == (chunk_hash in missing)
        assert content in (None, chunks[chunk_hash])


def demo(directory: Path, cleanup: ExitStack) -> None:
    """All steps; what must be undone goes to `cleanup` as soon as it exists."""
    image, mountpoint = directory / "cache.img", directory / "mnt"

    say("An image file becomes a store; a raw NVMe device works the same way")
    show("hcfs", "mkfs", image, "--size", "256M", "--label", "demo")

    say("It is mounted; the command returns when the mount serves")
    mountpoint.mkdir()
    cleanup.callback(unmount, mountpoint)
    show("hcfs", "mount", image, mountpoint, "--log", directory / "daemon.log")
    show("hcfs", "ns", "create", mountpoint, "kv")
    spec = output("hcfs", "lmcache-config", mountpoint, "kv")
    print("$ hcfs lmcache-config", mountpoint, "kv\n" + spec, end="")

    client = client_for(spec)
    say(f"{CHUNKS} chunks of {CHUNK_BYTES // MIB} MiB are stored and loaded with {client.name}")
    chunks = {os.urandom(32): os.urandom(CHUNK_BYTES) for _ in range(CHUNKS)}
    started = time.monotonic()
    client.store(chunks)
    print(f"stored {CHUNKS} chunks in {time.monotonic() - started:.2f} s")
    check(client, chunks, missing=set())

    say("They are ordinary files")
    show("ls", "-l", mountpoint / "kv")
    files = sorted((mountpoint / "kv").iterdir())
    if shutil.which("getfattr"):
        show("getfattr", "-d", "-m", "user.hcfs", "--absolute-names", files[0])
    show("df", "-h", mountpoint)
    show("hcfs", "keys", mountpoint, "kv")

    say("A bit of one chunk flips on the medium: that chunk is a miss, never wrong bytes; the others load")
    flip_byte(image, files[0])
    damaged = bytes.fromhex(files[0].name.split("@")[3].removesuffix(".data"))
    check(client, chunks, missing={damaged})
    print("lookup says:", ", ".join("hit" if hit else "miss" for hit in client.exists(list(chunks))))
    show("ls", mountpoint / ".hcfs" / "quarantine")

    say("The client stores it again, as it does with any miss, and all is well")
    client.store({damaged: chunks[damaged]})
    check(client, chunks, missing=set())

    say("The daemon is killed; after the next mount every chunk is there, whole")
    # What is visible is durable a second later, or when somebody calls fsync.
    handle = os.open(mountpoint / "kv", os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
    client.close()
    pid = json.loads(output("hcfs", "status", mountpoint, "--json"))["pid"]
    print(f"$ kill -9 {pid}")
    kill(pid)
    show("hcfs", "mount", image, mountpoint, "--log", directory / "daemon.log")
    again = client_for(spec)
    check(again, chunks, missing=set())
    status = json.loads(output("hcfs", "status", mountpoint, "--json"))
    print(f"state {status['state']}, {status['used_bytes'] // MIB} MiB used, {status['staged_bytes']} bytes unfinished")

    say("Unmounted, the store passes its check, every byte read")
    again.close()
    show("hcfs", "umount", mountpoint)
    show("hcfs", "fsck", image, "--data")


def unmount(mountpoint: Path) -> None:
    """Leave no mount behind, dead or alive."""
    if os.path.ismount(mountpoint) or not os.path.exists(mountpoint / "."):
        print("\n== Cleaning up")
        if subprocess.run([HCFS, "umount", mountpoint], check=False).returncode != 0:
            subprocess.run(["fusermount3", "-u", "-z", mountpoint], check=False)


def main() -> int:
    """Run the demo; 0 when everything was as promised."""
    place = Place.make("hcfs-demo-")
    directory = place.path
    try:
        with ExitStack() as cleanup:
            demo(directory, cleanup)
    except (subprocess.CalledProcessError, AssertionError, OSError, RuntimeError) as error:
        log = directory / "daemon.log"
        print(f"\ntools/demo failed: {type(error).__name__}: {error}", file=sys.stderr)
        if log.exists():
            print("The daemon's log ends with:", *log.read_text().splitlines()[-20:], sep="\n  ", file=sys.stderr)
        return 1
    finally:
        place.close()
    say("Everything was as promised, and nothing is left behind")
    return 0


if __name__ == "__main__":
    ended.run("tools/demo", main)
