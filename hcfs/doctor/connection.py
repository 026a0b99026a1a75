"""What the kernel lets one mount have under way at once."""

from __future__ import annotations

from hcfs.doctor.finding import Findings, failed, ok, warning
from hcfs.fuse.limits import BACKGROUND
from hcfs.mountpoint.client import connection_of, resolved


def background(directory: str) -> Findings:
    """The max_background of the mount at a directory."""
    number = connection_of(resolved(directory))
    if number is None:
        yield failed("max_background", f"{directory} isn't in the mount table", "mount it again")
        return
    path = f"/sys/fs/fuse/connections/{number}/max_background"
    try:
        with open(path) as file:
            limit = int(file.read())
    except OSError as error:
        yield warning(
            "max_background",
            f"{path} can't be read ({error.strerror}), so the limit isn't known",
            "ask as root, with 'mount -t fusectl fusectl /sys/fs/fuse/connections' if nothing is there",
        )
        return
    if limit >= BACKGROUND:
        yield ok("max_background", f"{limit} requests in the background at once")
    else:
        yield warning(
            "max_background",
            f"{limit} requests in the background at once: a file may be absent for a moment after its close",
            f"run 'echo {BACKGROUND} > {path}' as root",
        )
