"""The machine over a real mount, with writers that are processes; a crash is SIGKILL of the daemon."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from model.administered import AdministeredMachine
from model.machine import EXAMPLES, STEPS, Target
from model.tree import NAMESPACES, Seen

from lab.harness.actors import Actor, errno_of, eventually, load_direct
from lab.harness.cli import hcfs
from lab.harness.images import create_image
from lab.harness.mounts import Mount
from lab.harness.places import Place

_PARTS = ("used_bytes", "free_bytes", "staged_bytes", "pending_bytes", "quarantined_bytes")


class MountTarget:
    """System calls below a mount."""

    def __init__(self) -> None:
        self.place = Place.make("hcfs-model-")
        self.directory = self.place.path
        source = create_image(self.directory / "image.img", "64M")
        hcfs("mkfs", source, "--granule", "64K")
        self.mount = Mount(source, self.directory / "mnt", options="commit_interval=0.2,lookup_grace=0")
        self.mount.allow_warnings = ("is quarantined: granule",)
        self.mount.mount()
        self.actors: dict[int, tuple[Actor, int]] = {}
        self.handles: dict[int, int] = {}
        for name in NAMESPACES:
            os.mkdir(self.mount.dir / name)

    def at(self, path: str) -> str:
        return os.fspath(self.mount.dir / path)

    def tree(self) -> dict[str, Seen]:
        seen: dict[str, tuple[str, int, bytes, tuple[tuple[str, bytes], ...], int, int]] = {}
        for parent, directories, names in os.walk(self.mount.dir):
            if parent == os.fspath(self.mount.dir):
                assert ".hcfs" in directories
                directories.remove(".hcfs")
            for name in (*directories, *names):
                path = os.path.join(parent, name)
                status = os.lstat(path)
                kind = {stat.S_IFREG: "f", stat.S_IFDIR: "d", stat.S_IFLNK: "l"}[stat.S_IFMT(status.st_mode)]
                data = Path(path).read_bytes() if kind == "f" else b""
                if kind == "l":
                    data = os.fsencode(os.readlink(path))
                listed = [] if kind == "l" else os.listxattr(path)
                own = sorted(key for key in listed if not key.startswith("user.hcfs."))
                xattrs = tuple((key, os.getxattr(path, key)) for key in own)
                key = os.path.relpath(path, self.mount.dir)
                seen[key] = (kind, stat.S_IMODE(status.st_mode), data, xattrs, status.st_ino, status.st_nlink)
        groups: dict[int, set[str]] = {}
        for path, one in seen.items():
            groups.setdefault(one[4], set()).add(path)
        return {path: (*one[:4], frozenset(groups[one[4]]), one[5]) for path, one in seen.items()}

    # --- calls --------------------------------------------------------------------------------------------------------

    def put(self, path: str, data: bytes) -> None:
        """By a temporary name, whose rename publishes before it returns."""
        temporary = self.at(path) + ".tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)
        try:
            os.rename(temporary, self.at(path))
        except BaseException:
            os.unlink(temporary)
            raise

    def mkdir(self, path: str) -> None:
        os.mkdir(self.at(path), 0o755)

    def rmdir(self, path: str) -> None:
        os.rmdir(self.at(path))

    def unlink(self, path: str) -> None:
        os.unlink(self.at(path))

    def rename(self, old: str, new: str) -> None:
        os.rename(self.at(old), self.at(new))

    def link(self, old: str, new: str) -> None:
        os.link(self.at(old), self.at(new), follow_symlinks=False)

    def symlink(self, target: bytes, path: str) -> None:
        os.symlink(os.fsdecode(target), self.at(path))

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self.at(path), mode)

    def set_xattr(self, path: str, name: str, value: bytes) -> None:
        os.setxattr(self.at(path), name, value)

    def remove_xattr(self, path: str, name: str) -> None:
        os.removexattr(self.at(path), name)

    # --- writers and readers ------------------------------------------------------------------------------------------

    def begin(self, who: int, path: str, truncate: bool) -> None:
        actor = Actor()
        flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if truncate else 0)
        self.actors[who] = (actor, actor.open(self.at(path), flags, 0o644))

    def write(self, who: int, offset: int, data: bytes) -> None:
        actor, fd = self.actors[who]
        assert actor.pwrite(fd, data, offset) == len(data)

    def truncate(self, who: int, size: int) -> None:
        actor, fd = self.actors[who]
        actor.ftruncate(fd, size)

    def finish(self, who: int, modified: bool) -> None:
        """RELEASE, which publishes, comes after close has returned."""
        actor, fd = self.actors.pop(who)
        with actor:
            actor.close(fd)
            deadline = time.monotonic() + 20
            while f"\t{actor.pid}\t" in (self.mount.dir / ".hcfs" / "staged").read_text():
                assert time.monotonic() < deadline, "what was closed isn't published"
                time.sleep(0.005)

    def abandon(self, who: int) -> None:
        """A killed writer publishes nothing."""
        self.actors.pop(who)[0].__exit__(None, None, None)

    def hold(self, number: int, path: str) -> None:
        self.handles[number] = os.open(self.at(path), os.O_RDONLY)

    def read_held(self, number: int) -> bytes:
        return os.pread(self.handles[number], 1 << 20, 0)

    def release(self, number: int) -> None:
        os.close(self.handles.pop(number))

    # --- administration -----------------------------------------------------------------------------------------------

    def evict(self, namespace: str) -> int:
        """All that can go; how many went."""
        return int(self._command(command="evict", namespace=namespace)["objects"])

    def damage(self, path: str, scrub: bool) -> None:
        """Flip the file's first byte on the medium, and have it found."""
        extents = os.getxattr(self.at(path), "user.hcfs.extents")
        offset = int(extents.split()[0].partition(b"@")[2]) * 4096
        with open(self.mount.source, "r+b", buffering=0) as medium:
            before = os.pread(medium.fileno(), 1, offset)
            os.pwrite(medium.fileno(), bytes([before[0] ^ 1]), offset)
            os.fsync(medium.fileno())
        if scrub:
            self._command(command="scrub", action="start", rate=1 << 40)
            eventually(lambda: self.mount.status()["scrub"]["state"] == "finished", "the scrub is finished")
        else:
            assert errno_of(load_direct, self.at(path)) == "EIO"

    def _command(self, **words: object) -> dict[str, object]:
        with open(self.mount.dir / ".hcfs" / "control", "r+b", buffering=0) as control:
            control.write(json.dumps(words).encode())
            answer = json.loads(control.read(1 << 16))
        assert isinstance(answer, dict)
        return answer

    # --- durability ---------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        fd = os.open(self.mount.dir, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

    def crash(self) -> None:
        self.mount.kill()
        self._let_go()
        self.mount.mount()
        self._nothing_staged()

    def remount(self) -> None:
        self._let_go()
        self.mount.umount()
        hcfs("fsck", self.mount.source, "--data")
        self.mount.mount()
        self._nothing_staged()

    def _let_go(self) -> None:
        for actor, _ in self.actors.values():
            actor.__exit__(None, None, None)
        self.actors.clear()
        for fd in self.handles.values():
            os.close(fd)
        self.handles.clear()

    def _nothing_staged(self) -> None:
        status = self.mount.status()
        assert status["staged_objects"] == status["staged_bytes"] == 0
        assert status["state"] == "ok"

    def check(self) -> None:
        status = self.mount.status()
        assert sum(status[part] for part in _PARTS) == status["capacity_bytes"]

    def close(self) -> None:
        self._let_go()
        self.mount.close()
        hcfs("fsck", self.mount.source, "--data")
        self.place.close()


class MountMachine(AdministeredMachine):
    target: MountTarget

    def make_target(self) -> Target:
        return MountTarget()


TestMountModel = pytest.mark.timeout(180 + EXAMPLES * 60)(MountMachine.TestCase)
TestMountModel.settings = settings(
    max_examples=EXAMPLES or 3,
    stateful_step_count=STEPS if EXAMPLES else 25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
