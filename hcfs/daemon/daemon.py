"""From `hcfs mount` to a mount that serves, and from `hcfs umount` to a device that is free."""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

import trio

from hcfs.cache import Cache
from hcfs.daemon import logs
from hcfs.daemon.administration import Administration
from hcfs.daemon.scrubbing import Scrubbing
from hcfs.daemon.session import Session
from hcfs.daemon.status import StatusReport
from hcfs.device import BlockDevice, BufferPool, open_device
from hcfs.device.mounts import MountEntry, mounts
from hcfs.device.processes import name_processes
from hcfs.errors import HcfsError
from hcfs.faults import attempt, log_what_ends_threads
from hcfs.filesystem.filesystem import Filesystem
from hcfs.filesystem.places.control import Control
from hcfs.frontends.data_plane import DataPlane, pool_budget
from hcfs.frontends.front_ends import FrontEnd, PyfuseFrontEnd
from hcfs.frontends.notices import Notifier
from hcfs.frontends.operations import Operations
from hcfs.fuse.handshake import HandshakeFailed
from hcfs.host.process import Process, has_ended, is_alive, process_of
from hcfs.host.signals import ignore_stray_signals
from hcfs.mountpoint import mountpoint, tuning
from hcfs.mountpoint.client import mount_at, read_status
from hcfs.mountpoint.fuse_connections import is_stopped, servers_of
from hcfs.mountpoint.guard import abort, guard_child, start_guard
from hcfs.options.mount_options import MountOptions
from hcfs.origin.environment import tidy_environment
from hcfs.printable import printable
from hcfs.remote.allowed_origins import AllowedOrigins
from hcfs.remote.kinds import add_origins, show_offline
from hcfs.remote.origins import Origins
from hcfs.store import Store, UnrecoveredStore
from hcfs.store.discard import Discards

log = logging.getLogger(__name__)

UNMOUNT_LIMIT = 300.0
"""Seconds for the daemon to end once nothing is mounted: what was written last is on its way to the device."""

BUSY_LIMIT = 0.5
"""Seconds for which a mount that is in use is asked again: whoever watches its status has that open for milliseconds,
again and again."""

LAST_DISCARDS = 5.0
"""Seconds for which the end of a mount discards what is left."""

ELSEWHERE_AFTER = 2.0
"""Seconds of waiting for the daemon before a look at other mount namespaces: it goes through all processes."""

REAPED_LIMIT = 1.0
"""Seconds for an ended daemon's parent to take note of it, so that its process id is gone."""


def mount(source: str, directory: str, options: MountOptions, foreground: bool) -> None:
    """Mount a device or image at a directory.

    In the foreground it returns when the mount has ended; else when it serves, and a daemon is left behind. HcfsError
    says in one sentence why it couldn't be mounted.
    """
    source = os.path.abspath(source)
    path = mountpoint.prepare(directory, source)
    if os.listdir(path):
        hidden = f"hcfs: {directory} isn't empty: what is in it is hidden as long as it is mounted over."
        print(printable(hidden), file=sys.stderr)
    if foreground:
        handler = logs.open_log(options.log) if options.log else logs.stderr_handler()
        logs.log_to(handler)
        start_guard(path)
        _serve(source, path, options, lambda: None)
        return
    log_path = options.log or logs.default_log(path)
    _daemonize(path, lambda ready: _serve(source, path, options, ready), os.path.abspath(log_path))


def unmount(directory: str, lazy: bool) -> None:
    """Unmount, and return when the daemon has ended and the device is free; lazily, return at once, and the daemon ends
    with the mount's last user. HcfsError when nothing is mounted there, or it is in use."""
    mounted = mount_at(directory)
    if mounted is None:
        raise HcfsError(f"{directory} is not an hcfs mount; nothing is unmounted")
    mountpoint.require_owner(directory, mounted)
    path = mounted.directory
    # Whoever gives a mount up needn't wait to see that a stopped daemon gives no answer.
    given_up = lazy and any(is_stopped(pid) for pid in servers_of(os.minor(mounted.device)))
    condition = "hung" if given_up else mountpoint.condition_of(path)
    if condition == "dead":
        mountpoint.clear_dead(path)
        return
    if condition == "hung":
        if not lazy:
            raise mountpoint.hung(directory)
        abort(os.minor(mounted.device))
    daemon = _daemon_of(path) if condition == "alive" else None
    _unmount_patiently(path, lazy)
    if lazy or daemon is None:
        return
    deadline, look = time.monotonic() + UNMOUNT_LIMIT, time.monotonic() + ELSEWHERE_AFTER
    while not has_ended(daemon):
        if time.monotonic() > look:
            _refuse_elsewhere(directory, mounted)
            look = time.monotonic() + ELSEWHERE_AFTER
        if time.monotonic() > deadline:
            raise HcfsError(
                f"{directory} is unmounted, but process {daemon.tgid} still holds {mounted.source} after "
                f"{UNMOUNT_LIMIT:g} s; look at its log"
            )
        time.sleep(0.01)
    # A daemon's guard takes note of its end at once; the parent of one in the foreground may never do.
    deadline = time.monotonic() + REAPED_LIMIT
    while is_alive(daemon) and time.monotonic() < deadline:
        time.sleep(0.01)


def _unmount_patiently(path: str, lazy: bool) -> None:
    deadline = time.monotonic() + BUSY_LIMIT
    while True:
        try:
            mountpoint.unmount_now(path, lazy=lazy)
            return
        except mountpoint.Busy:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _refuse_elsewhere(directory: str, mounted: MountEntry) -> None:
    """HcfsError when another mount namespace, a container's or a service's, still has the mount."""
    for entry in mounts():
        if entry.pid is not None and entry.device == mounted.device and entry.filesystem == mounted.filesystem:
            who = name_processes([entry.pid])
            raise HcfsError(
                f"{directory} is unmounted here, but the mount namespace of {who} still has it, so {mounted.source} "
                f"stays in use; end that, or run 'nsenter -t {entry.pid} -m umount {entry.directory}'"
            )


def _daemon_of(path: str) -> Process | None:
    try:
        return process_of(int(read_status(path)["pid"]))
    except HcfsError:
        return None


# --- the daemon's process --------------------------------------------------------------------------------------------


def _daemonize(path: str, serve: Callable[[Callable[[], None]], None], log_path: str) -> None:
    """Run `serve` in a daemon and return when it calls what it is given; HcfsError with its reason when it doesn't.

    The daemon's parent is its guard, and the guard's parent, once the process between has ended, is init."""
    handler = logs.open_log(log_path)
    receiving, sending = os.pipe()
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        daemon = os.fork()
        if daemon:
            try:
                guard_child(path, daemon)
            finally:
                os._exit(0)
        os.close(receiving)
        logs.log_to(handler)
        _run_as_daemon(serve, sending)
    os.close(sending)
    os.waitpid(first, 0)
    with open(receiving, "rb") as pipe:
        word = pipe.read()
    handler.close()
    if not word:
        raise HcfsError(f"the daemon ended before it served; its log {log_path} may say why")
    answer = json.loads(word)
    if answer["error"] is not None:
        failure = HcfsError(answer["error"])
        failure.exit_code = answer["exit_code"]
        raise failure


def _run_as_daemon(serve: Callable[[Callable[[], None]], None], sending: int) -> None:
    """Never returns."""
    waiting = True

    def tell(error: str | None, exit_code: int = 1) -> None:
        nonlocal waiting
        if waiting:
            waiting = False
            os.write(sending, json.dumps({"error": error, "exit_code": exit_code}).encode())
            os.close(sending)
            _leave_terminal()

    status = 1
    try:
        os.chdir("/")
        serve(lambda: tell(None))
        status = 0
    except HcfsError as error:
        log.error("%s", error)
        tell(str(error), error.exit_code)
    except BaseException as error:
        log.exception("the daemon failed unexpectedly")
        tell(f"a bug in hcfs kept it from mounting ({type(error).__name__}: {error}); its log has the details")
    finally:
        logging.shutdown()
        os._exit(status)


def _leave_terminal() -> None:
    """The caller's streams are its own again: who reads them to their end isn't to wait for this daemon's."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)


def _serve(source: str, path: str, options: MountOptions, ready: Callable[[], None]) -> None:
    """Mount, call `ready` when it serves, and return when it has ended and everything is durable."""
    ignore_stray_signals()
    _note_tidied(tidy_environment())
    logs.show_stacks_when_told()
    log_what_ends_threads()
    tuning.tune_process()
    pool = BufferPool(options.memory if options.data_plane == "off" else pool_budget(options.memory))
    with ExitStack() as stack:
        device = open_device(source, pool, read_only=options.read_only)
        stack.callback(device.close)
        if options.discard == "batch" and not device.takes_discard:
            raise HcfsError(f"{source} takes no discards, so discard=batch can't be kept; mount it without")
        store = UnrecoveredStore.open(device, pool).recover(read_only=options.read_only)
        discards = Discards(store) if options.discard == "batch" else None
        stack.callback(_close_store, store, discards)
        notifier = Notifier()
        cache = _make_cache(store, options, notifier)
        filesystem = Filesystem(
            store,
            cache,
            notifier,
            entry_timeout=options.entry_timeout,
            staging_ttl=options.staging_ttl,
            read_only=options.read_only,
        )
        stack.callback(filesystem.parts.housekeeping.abandon_all)
        stack.callback(filesystem.close)
        origins: Origins | None = None
        if options.read_only:
            show_offline(filesystem)
        else:
            allowed = AllowedOrigins(options.allow_origin)
            origins = add_origins(filesystem, upload_attempts=options.upload_attempts, allowed=allowed)
            stack.callback(origins.close)
            notifier.is_slow = _has_origin(origins)
        scrubbing = Scrubbing(filesystem)
        control = Control(Administration(filesystem, scrubbing, origins).commands())
        stack.callback(control.close)
        report = StatusReport(
            filesystem,
            device,
            pool,
            options,
            source=source,
            directory=path,
            scrubbing=scrubbing,
            control=control,
            origins=origins,
            discards=discards,
        )
        filesystem.parts.show(report.tree(), control)
        # What recovery made stays for good: the collector needn't look at it again.
        gc.collect()
        gc.freeze()

        def ending() -> None:
            for part in (control, scrubbing, origins):
                if part is not None:
                    attempt("the end of what is under way", part.end)

        session = Session(
            filesystem, cache, store, options.commit_interval, scrubbing=scrubbing, discards=discards, on_end=ending
        )

        def serving() -> None:
            filesystem.volume.device = tuning.tune_mount(path)
            _log_state(source, path, device, store)
            ready()

        _run(session, filesystem, notifier, report, path, source, options, serving)
    log.info("%s: unmounted from %s", source, path)


def _has_origin(origins: Origins) -> Callable[[int], bool]:
    return lambda directory: bool(origins) and origins.of_inode(directory) is not None


def _note_tidied(names: list[str]) -> None:
    if names:
        log.info("blanks and line ends were taken off these variables of the environment: %s", ", ".join(names))


def _make_cache(store: Store, options: MountOptions, notifier: Notifier) -> Cache:
    def evicted(names: list[tuple[int, bytes]]) -> None:
        for parent, name in names:
            notifier.forget_name(parent, name)

    return Cache(
        store,
        lookup_grace_s=options.lookup_grace,
        entry_timeout_s=options.entry_timeout,
        high_watermark=options.high_watermark,
        low_watermark=options.low_watermark,
        on_evicted=evicted,
    )


def _close_store(store: Store, discards: Discards | None) -> None:
    try:
        if discards is not None and store.state != "read-only":
            # What is left is found by the next mount, as free space whose past nobody knows.
            store.commit()
            discards.run(LAST_DISCARDS)
        store.close()
    except HcfsError as error:
        log.error("what was published last may be lost: %s", error)


def _run(
    session: Session,
    filesystem: Filesystem,
    notifier: Notifier,
    report: StatusReport,
    path: str,
    source: str,
    options: MountOptions,
    serving: Callable[[], None],
) -> None:
    """Mount and serve, through the data plane where that is wanted and can be, until the mount has ended."""
    session.listen()
    kernel_options = options.kernel_options(source)
    refusal = "data_plane=off"
    if options.data_plane != "off":
        try:
            plane = DataPlane(filesystem, Operations(filesystem), path, kernel_options, options.memory)
            _serve_through(plane, session, notifier, report, serving)
            return
        except HandshakeFailed as error:
            if options.data_plane == "on":
                raise HcfsError(f"{error}; mount with data_plane=auto to go on without the data plane") from None
            refusal = str(error)
            log.info("pyfuse3 serves all requests: %s", refusal)
    report.data_plane_reason = refusal
    tuning.tune_heap_for_writes()
    plain = PyfuseFrontEnd(Operations(filesystem), path, kernel_options)
    _serve_through(plain, session, notifier, report, serving)


def _serve_through(
    front: FrontEnd, session: Session, notifier: Notifier, report: StatusReport, serving: Callable[[], None]
) -> None:
    report.front = front
    try:
        notifier.start(front.notices)
        trio.run(session.run, front, serving)
    finally:
        attempt("the end of notices", notifier.stop)
        front.close()


def _log_state(source: str, path: str, device: BlockDevice, store: Store) -> None:
    log.info("%s is mounted at %s: %s I/O, store %s", source, path, device.io, store.superblock.uuid)
    if store.state != "ok" and not (store.state == "read-only" and device.read_only):
        log.warning("%s is %s: %s", source, store.state, store.state_reason)
