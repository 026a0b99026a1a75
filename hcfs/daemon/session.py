"""A mount's life, from the first request to the last: what runs beside the front end."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from hcfs.cache import Cache
from hcfs.daemon import logs
from hcfs.daemon.scrubbing import Scrubbing
from hcfs.errors import HcfsError
from hcfs.faults import attempt
from hcfs.filesystem.filesystem import Filesystem
from hcfs.frontends.front_ends import FrontEnd
from hcfs.host.signals import REOPENING, Signals
from hcfs.store import Store
from hcfs.store.discard import Discards

log = logging.getLogger(__name__)

HOUSEKEEPING = 1.0
"""Seconds between looks for something to evict, reclaim or checkpoint."""

TOUCHES = 60.0
"""Seconds after which accesses are made durable even if nothing else is."""


class Session:
    """Tasks of one mount. `run` returns when the mount has ended: unmounted, or told to by a signal."""

    def __init__(
        self,
        filesystem: Filesystem,
        cache: Cache,
        store: Store,
        commit_interval: float,
        *,
        scrubbing: Scrubbing,
        discards: Discards | None,
        on_end: Callable[[], None],
    ) -> None:
        """discards: None where there are to be none. on_end: called, from the loop's thread, when the mount ends or is
        told to: whatever takes long is to end early, since the main loop waits for the calls that it has begun."""
        self._fs = filesystem
        self._cache = cache
        self._store = store
        self._commit_interval = commit_interval
        self._on_end = on_end
        self._scrubbing = scrubbing
        self._discards = discards
        self._heeded = Signals()
        self._ends = False
        self._scrub_wanted = trio.Event()
        self._pending = trio.Event()
        self._serving = trio.Event()

    def listen(self) -> None:
        """Take note of signals from now on, for `run` to act on. In the main thread; call it before there is a mount,
        which a signal would leave without anybody who serves it."""
        self._heeded.listen()

    async def run(self, front: FrontEnd, on_serving: Callable[[], None]) -> None:
        """Serve through a front end. on_serving is called in a worker thread once the kernel has shaken hands.
        HcfsError as from the front end.

        Cancelled, it leaves calls without answers: send a signal instead.
        """
        token = trio.lowlevel.current_trio_token()
        self._store.when_pending(lambda: token.run_sync_soon(self._signal_pending, idempotent=True))
        failure: HcfsError | None = None
        self._scrubbing.on_start = lambda: token.run_sync_soon(self._signal_scrub, idempotent=True)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._signals, front)
                nursery.start_soon(self._announce, on_serving)
                nursery.start_soon(self._steadily, self._scrub)
                if not self._fs.volume.read_only:
                    for task in (self._commit, self._keep_house, self._keep_accesses, self._discard):
                        nursery.start_soon(self._steadily, task)
                try:
                    await front.serve(lambda: token.run_sync_soon(self._serving.set))
                    self._end()
                except HcfsError as error:
                    failure = error
                nursery.cancel_scope.cancel()
            self._fs.parts.housekeeping.publish_closed()
        finally:
            self._store.when_pending(None)
            self._scrubbing.on_start = None
        if failure is not None:
            raise failure

    def _signal_pending(self) -> None:
        self._pending.set()

    def _end(self) -> None:
        self._ends = True
        attempt("what the end of a mount begins with", self._on_end)

    def _signal_scrub(self) -> None:
        self._scrub_wanted.set()

    async def _signals(self, front: FrontEnd) -> None:
        while True:
            number = await self._heeded.next()
            if number == REOPENING and logs.has_file():
                if attempt("opening the log anew", logs.reopen):
                    log.info("%s: the log is opened anew", number.name)
                continue
            log.info("%s: unmounting", number.name)
            self._end()
            front.end()

    async def _announce(self, on_serving: Callable[[], None]) -> None:
        await self._serving.wait()
        await trio.to_thread.run_sync(attempt, "what follows the mount", on_serving)

    async def _steadily(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task again and again, whatever it raises, but for what trio cancels it with. Cancelled at its
        checkpoints, nothing half done."""
        while True:
            try:
                await task()
            except (trio.Cancelled, GeneratorExit):
                raise
            except HcfsError as error:
                log.warning("%s", error)
                await trio.sleep(HOUSEKEEPING)
            except BaseException:
                log.exception("a background task failed unexpectedly and is tried again")
                await trio.sleep(HOUSEKEEPING)

    async def _commit(self) -> None:
        """One group commit, commit_interval after the first change it takes along."""
        await self._pending.wait()
        await trio.sleep(self._commit_interval)
        self._pending = trio.Event()
        await trio.to_thread.run_sync(self._store.commit)

    async def _scrub(self) -> None:
        """One pass. Cancelled, it waits until `on_end` has stopped the pass, whose position is kept."""
        await self._scrub_wanted.wait()
        self._scrub_wanted = trio.Event()
        await trio.to_thread.run_sync(self._scrubbing.run)

    async def _discard(self) -> None:
        if self._discards is None:
            await trio.sleep_forever()
        await trio.sleep(HOUSEKEEPING)
        await trio.to_thread.run_sync(self._discards.run, HOUSEKEEPING, lambda: self._ends)

    async def _keep_house(self) -> None:
        await trio.sleep(HOUSEKEEPING)
        self._fs.parts.housekeeping.reap()
        if self._cache.over_high_watermark():
            await trio.to_thread.run_sync(self._cache.evict_to_watermark)
        if self._cache.over_quota():
            await trio.to_thread.run_sync(self._cache.evict_to_quotas)
        if self._store.durability.checkpoint_due:
            await trio.to_thread.run_sync(self._store.checkpoint)

    async def _keep_accesses(self) -> None:
        await trio.sleep(TOUCHES)
        self._store.durability.flush_touches()
