"""Every word that mount(8) may hand over, on real mounts: it works, and does what it says or has nothing to do, or is
refused with a sentence that names it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hcfs.cli import run
from hcfs.options.mount_words import REFUSED
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.namespaces import own_mounts

# "FILESYSTEM-INDEPENDENT MOUNT OPTIONS" of mount(8). A mount of FUSE has nodev and nosuid unless others are asked for.
TAKEN = {
    "": "rw,nodev,nosuid",
    "defaults,relatime": "rw,nodev,nosuid",
    "noatime": "rw,nodev,nosuid,noatime",
    "dev": "rw,nosuid",
    "suid": "rw,nodev",
    "nodev,dev,nodev,suid,nosuid": "rw,nodev,nosuid",
    "noexec": "rw,nodev,nosuid,noexec",
    "exec,noexec,exec,noatime,atime": "rw,nodev,nosuid",
    "ro": "ro,nodev,nosuid",
    "allow_other": "rw,nodev,nosuid,allow_other",
    "async,auto,noauto,diratime,nodiratime,group,nogroup,noiversion,nomand,_netdev,nofail": "rw,nodev,nosuid",
    "norelatime,nostrictatime,lazytime,nolazytime,silent,loud,owner,noowner,symfollow,rw": "rw,nodev,nosuid",
    "user,nouser,users,nousers,comment,x-systemd.automount,x-gvfs-hide,X-mount.mkdir": "rw,nodev,nosuid",
    "user=somebody,comment=of somebody,x-systemd.device-timeout=30,X-mount.mode=0700": "rw,nodev,nosuid",
}
"""Words, and of WATCHED what the kernel then says of the mount."""
WATCHED = {"rw", "ro", "dev", "nodev", "suid", "nosuid", "exec", "noexec", "noatime", "allow_other"}
ASKED_FOR = [
    *("allow_root", "strictatime", "sync", "dirsync", "mand", "iversion", "nosymfollow", "remount", "remount,ro"),
    *("context=system_u:object_r:tmp_t:s0", "fscontext=a", "defcontext=a", "rootcontext=a", "rootcontext=@target"),
    *("loop", "loop=/dev/loop0", "offset=4096", "sizelimit=4096", "encryption=aes"),
    *("bind", "rbind", "move", "shared", "rshared", "slave", "rslave", "private", "rprivate", "unbindable"),
    "runbindable",
]
UNKNOWN = ["quota", "usrquota", "uid=0", "umask=022", "errors=remount-ro", "noatime=1", "nofail=yes", "colour"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    image = tmp_path_factory.mktemp("words") / "image"
    hcfs("mkfs", image, "--size", "64M")
    return image


@pytest.fixture
def mount(store: Path, tmp_path: Path) -> Iterator[Mount]:
    mount = Mount(store, tmp_path / "mnt", allow_warnings=["is read-only: mounted read-only$"])
    yield mount
    mount.close()


def flags(directory: Path) -> set[str]:
    """The kernel's words for a mount, of its place and of its filesystem."""
    for line in Path("/proc/self/mountinfo").read_bytes().decode(errors="replace").split("\n"):
        fields = line.split(" ")
        if len(fields) > 5 and fields[4] == str(directory):
            return {*fields[5].split(","), *(word for word in fields[-1].split(",") if word != "rw")}
    raise AssertionError(f"nothing is mounted at {directory}")


@pytest.mark.parametrize("words", TAKEN)
def test_words_that_are_taken(mount: Mount, words: str) -> None:
    mount.mount(words)
    assert WATCHED & flags(mount.dir) == set(TAKEN[words].split(","))
    if words == "ro":
        with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
            (mount.dir / "new").mkdir()
    else:
        mount.ns("kv")
    in_force = json.loads((mount.dir / ".hcfs" / "config.json").read_bytes())
    for word in filter(None, words.split(",")):
        name, _, value = word.partition("=")
        assert name == "rw" or in_force[name] == (value or True)


@pytest.mark.parametrize("word", [*ASKED_FOR, *UNKNOWN])
def test_a_word_that_is_refused(mount: Mount, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By hcfs, which names it, before anything is mounted; of those that ask for something, with what to do."""
    assert run.run(["mount", str(mount.source), str(mount.dir), "-o", f"rw,{word}"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    name = word.partition(",")[0]
    assert repr(name) in said
    assert REFUSED.get(name.partition("=")[0], "hcfs's own are") in said
    assert not mount.mounted


def test_every_word_that_is_refused_is_in_the_table() -> None:
    assert {word.partition(",")[0].partition("=")[0] for word in ASKED_FOR} == set(REFUSED)


def toml(words: str) -> str:
    lines = {}
    for word in words.split(","):
        name, equals, value = word.partition("=")
        lines[name] = json.dumps(value) if equals else "true"
    return "".join(f"{json.dumps(name)} = {value}\n" for name, value in lines.items())


def test_words_in_a_configuration(mount: Mount, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All that are taken, at once; and each that is refused, unless it says false."""
    config = tmp_path / "hcfs.toml"
    together = [words for words in TAKEN if words.startswith(("noexec", "async", "norelatime", "user="))]
    unasked = "".join(f"{word} = false\n" for word in ("sync", "allow_root", "loop"))
    config.write_text(toml(",".join(["nodev,noatime,allow_other", *together])) + unasked)
    mount.mount("", "--config", str(config))
    assert WATCHED & flags(mount.dir) == {"rw", "nodev", "nosuid", "noexec", "noatime", "allow_other"}
    mount.umount()
    for word in [*ASKED_FOR, *UNKNOWN]:
        config.write_text(toml(word))
        assert run.run(["mount", str(mount.source), str(mount.dir), "--config", str(config)]) == 2, word
        assert repr(word.partition(",")[0]) in " ".join(capsys.readouterr().err.split())
    assert not mount.mounted


HELPER = """
set -e
mount -t tmpfs none /usr/local/sbin
ln -s "$1" /usr/local/sbin/hcfs
shift
exec "$@"
"""
"""mount(8) resets the PATH: the command is where an administrator puts it, in a mount namespace of the test's own."""


@pytest.fixture
def by_mount(mount: Mount, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`mount -t fuse.hcfs -o WORDS IMAGE DIR`, a look at what is mounted, and `hcfs umount`."""

    def call(words: str) -> subprocess.CompletedProcess[str]:
        look = (
            'mount -t fuse.hcfs "$1" "$2" -o "$3"; findmnt -no OPTIONS "$2"; stat "$2/.hcfs/status.json" >/dev/null;'
            ' hcfs umount "$2"'
        )
        command = Path(sys.executable).with_name("hcfs")
        script = f'export PATH="$PATH:/usr/local/sbin"; set -e; {look}'
        inner = ["sh", "-c", script, "sh", mount.source, mount.dir, f"log={tmp_path / 'log'},{words}"]
        outer = own_mounts(HELPER, "sh", command, *inner)
        return subprocess.run(list(map(str, outer)), capture_output=True, text=True, timeout=100)

    return call


@pytest.mark.parametrize(
    "words",
    [
        "defaults,relatime", "rw,nosuid,nodev,noexec,noatime,nodiratime", "ro,noauto,nofail,_netdev,lazytime",
        "users,owner,group,silent,nostrictatime,norelatime", "x-systemd.device-timeout=30,X-mount.mkdir,allow_other",
        "comment=of somebody,noiversion,nomand,nolazytime,async,loud", "user,exec,dev,suid",
    ],
)  # fmt: skip
def test_mount_hands_words_over(by_mount: Callable[..., subprocess.CompletedProcess[str]], words: str) -> None:
    done = by_mount(words)
    assert done.returncode == 0, done.stderr
    for word in {"nosuid", "nodev", "noexec", "noatime", "ro", "allow_other"} & set(words.split(",")):
        assert word in done.stdout.strip().split(",")


@pytest.mark.parametrize("word", ["allow_root", "strictatime", "sync", "dirsync", "mand", "iversion", "colour"])
def test_mount_says_what_hcfs_refuses(by_mount: Callable[..., subprocess.CompletedProcess[str]], word: str) -> None:
    done = by_mount(word)
    assert done.returncode != 0
    assert repr(word) in done.stderr
