"""Threads that read requests and answer them.

One thread at a time leads: it reads requests in their order and answers at once what needs memory only. So a RELEASE
is done before a LOOKUP that the kernel sent after it, whichever process it comes from. A request that may wait makes
the leader leave: it runs the request in its lane, and another thread leads.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, cast

from hcfs.fuse.bridge import Bridge
from hcfs.fuse.connection import Connection
from hcfs.fuse.lanes import InLane, Job, Lane, Parked
from hcfs.fuse.payloads import Payloads
from hcfs.fuse.protocol import HEAD, IN_HEADER, OUT_HEADER, Opcode
from hcfs.fuse.request import Answer, Forward, Request

log = logging.getLogger(__name__)

_WITHOUT_ANSWER = frozenset((Opcode.FORGET, Opcode.BATCH_FORGET, Opcode.INTERRUPT))
"""Ids are never used twice, so nothing is kept for the kernel's sake; and what is under way can't be interrupted."""


_JOINED = 4096
"""Bytes of an answer that is cheaper to copy behind its header than to send as a second piece."""


Later = Callable[[], Answer] | InLane
"""What would wait, for a thread that may."""

_AGAIN = 0.1
_AGAIN_MAX = 3.0
"""Seconds until a thread that failed by a fault of its own serves again, doubled each time: else it might do nothing
but fail."""

Handler = Callable[[Request], Answer | Forward | Later | Parked]
"""Answers from memory; what would wait comes back as a function, or as one with the lane to run it in. Only one that
runs in a lane may park its request."""


class Route(NamedTuple):
    """Who answers requests of one kind."""

    handler: Handler
    lane: Lane | None = None
    """Where all of them run, and the handler answers for good, or parks the request; None: the leader calls the
    handler, which doesn't wait."""


class Workers:
    """The threads of one connection; as many as the lanes may need, and one to lead. They start when they are
    needed."""

    def __init__(
        self,
        connection: Connection,
        bridge: Bridge,
        routes: Mapping[int, Route],
        control: Lane,
        payloads: Payloads,
        *,
        others: Sequence[Lane] = (),
        failed: Callable[[Request, BaseException], int],
        on_end: Callable[[], None],
    ) -> None:
        """control: the lane of what the leader's handlers leave to do; others: lanes that they name. failed: the
        errno to answer an exception with.
        on_end: called once, in a thread of these, when the mount has ended."""
        self._connection = connection
        self._bridge = bridge
        self._routes = routes
        self._control = control
        self._payloads = payloads
        self._failed = failed
        self._on_end = on_end
        self._lanes = {control, *others, *(route.lane for route in routes.values() if route.lane is not None)}
        self._most = sum(lane.limit for lane in self._lanes) + 1
        self._turn = threading.Lock()
        self._head = bytearray(HEAD)
        self._payload: memoryview | None = None
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._followers = 0
        self._stopping = False
        self._ended = False
        self._parked: set[Job] = set()
        self._finishing = False
        """Nothing is parked any more."""
        self._resumed = ThreadPoolExecutor(max(lane.limit for lane in self._lanes), "hcfs-resumed")
        """Run what was parked; no thread is started before something is."""
        self._short = False
        """It was said that no thread can be started."""
        self.served: Counter[int] = Counter()
        """Requests by opcode, since the mount began, that were answered here."""
        self.forwarded: Counter[int] = Counter()
        """Requests by opcode that went to libfuse."""
        self.hops = 0
        """How often another thread took the lead, since the one before had a job to run."""

    def start(self) -> None:
        """Begin to serve."""
        self._start_thread()

    def finish(self) -> None:
        """Begin nothing more than what comes next, and return when what was begun is answered. Blocks."""
        self._stopping = True
        with self._lock:
            self._finishing = True
            parked, self._parked = self._parked, set()
        for job in parked:
            self._reply(job.request.unique, errno.EIO)
        for lane in self._lanes:
            lane.wait_until_idle()

    def join(self, timeout: float) -> bool:
        """Wait for the threads, which end with the connection; False when some don't in time (seconds, each)."""
        self._resumed.shutdown(wait=False)
        for thread in self._threads:
            thread.join(timeout)
        return not any(thread.is_alive() for thread in self._threads)

    def _start_thread(self) -> None:
        """One more. Where there is no memory for it, those that there are take turns; the first one must start."""
        thread = threading.Thread(target=self._work, name=f"hcfs-plane-{len(self._threads)}", daemon=True)
        with self._lock:
            try:
                thread.start()
            except RuntimeError as error:
                if not self._threads:
                    raise
                if not self._short:
                    log.error(
                        "%d threads serve, and no more can be started (%s): give the daemon more memory or threads",
                        len(self._threads),
                        error,
                    )
                self._short = True
            else:
                self._threads.append(thread)

    def _work(self) -> None:
        while True:
            with self._lock:
                self._followers += 1
            with self._turn:
                with self._lock:
                    self._followers -= 1
                    alone = not self._followers and len(self._threads) < self._most
                job = self._led()
                if job is not None:
                    self.hops += 1
                    if alone and not self._followers:
                        self._start_thread()
            if job is None:
                return
            self._run(job)

    def _led(self) -> Job | None:
        """_lead, whatever it raises: without a leader nothing is ever answered again."""
        pause = _AGAIN
        while True:
            try:
                return self._lead()
            except BaseException:
                log.exception("the thread that reads requests failed unexpectedly, and goes on")
                time.sleep(pause)
                pause = min(2 * pause, _AGAIN_MAX)

    def _lead(self) -> Job | None:
        """Serve until there is something for this thread alone; None when the mount has ended. The turn is held."""
        while not self._stopping:
            if self._payload is None:
                self._payload = self._payloads.take()
            length = self._connection.receive(self._head, self._payload)
            if not length:
                self._stopping = True
                if not self._ended:
                    self._ended = True
                    try:
                        self._on_end()
                    except BaseException:
                        log.exception("the mount has ended, and its main loop can't be told")
                return None
            job = self._taken(length, self._payload)
            if job is not None and job.lane.enter(job):
                return job
        return None

    def _taken(self, length: int, payload: memoryview) -> Job | None:
        """_take, whatever it raises: a thread less, and the turn with it, would be the end of the mount."""
        try:
            return self._take(length, payload)
        except BaseException:
            log.exception("a request was answered EIO, for a fault of the data plane itself")
            self._reply(IN_HEADER.unpack_from(self._head)[2], errno.EIO)
            return None

    def _take(self, length: int, payload: memoryview) -> Job | None:
        """One request: answered, forwarded, or what is left to do of it. The turn is held."""
        head = self._head
        size, opcode, unique, nodeid, uid, gid, pid, _, _ = IN_HEADER.unpack_from(head)
        if opcode in _WITHOUT_ANSWER:
            return None
        route = self._routes.get(opcode)
        if size != length:
            self._reply(unique, errno.EIO)
        elif route is None:
            self._forward(opcode, unique, payload, length)
        elif opcode == Opcode.WRITE:
            self._payload = None
            self.served[opcode] += 1
            arguments = bytes(head[IN_HEADER.size :])
            request = Request(opcode, unique, nodeid, uid, gid, pid, arguments, payload, max(0, length - HEAD))
            return self._job(route, request)
        else:
            body = bytes(head[IN_HEADER.size : length])
            if length > HEAD:
                body += payload[: length - HEAD]
            request = Request(opcode, unique, nodeid, uid, gid, pid, body)
            if route.lane is not None:
                self.served[opcode] += 1
                return self._job(route, request)
            answer = self._ask(route.handler, request)
            if isinstance(answer, Forward):
                self._forward(opcode, unique, payload, length)
                return None
            self.served[opcode] += 1
            if isinstance(answer, InLane):
                return Job(answer.lane, request, answer.run)
            assert not isinstance(answer, Parked)
            if callable(answer):
                return Job(self._control, request, answer)
            self._reply(unique, answer)
        return None

    def _job(self, route: Route, request: Request) -> Job:
        assert route.lane is not None
        return Job(route.lane, request, cast("Callable[[], Answer | Parked]", partial(route.handler, request)))

    def _forward(self, opcode: int, unique: int, payload: memoryview, length: int) -> None:
        self.forwarded[opcode] += 1
        if not self._bridge.forward(opcode, self._head, payload, length):
            self._reply(unique, errno.ENOTCONN)

    def _run(self, first: Job) -> None:
        """Run a job, and those that wait in its lane."""
        job: Job | None = first
        while job is not None:
            request = job.request
            answer = self._outcome(job)
            try:
                if isinstance(answer, Parked):
                    self._park(job, answer)
                else:
                    self._reply(request.unique, answer)
                    if request.buffer is not None:
                        self._payloads.give(request.buffer)
            except BaseException:
                log.exception("what follows an answer failed unexpectedly")
            job = job.lane.leave()

    def _park(self, job: Job, parked: Parked) -> None:
        """Keep a job, but no thread, until it is to be run again."""
        try:
            # So that there is a thread for it then: whoever calls back mayn't wait, and can't answer.
            self._resumed.submit(_nothing)
        except BaseException:
            self._reply(job.request.unique, errno.EIO)
            return
        with self._lock:
            finishing = self._finishing
            if not finishing:
                self._parked.add(job)
        if finishing:
            self._reply(job.request.unique, errno.EIO)
            return
        try:
            parked.call_back(partial(self._run_again, job))
        except BaseException as error:
            with self._lock:
                waits = job in self._parked
                self._parked.discard(job)
            if waits:
                self._reply(job.request.unique, self._errno_of(job.request, error))

    def _run_again(self, job: Job) -> None:
        """Never blocks. A job is parked, or counted by its lane, so `finish` misses none."""
        with self._lock:
            if job not in self._parked:
                return
            self._parked.remove(job)
            runs = job.lane.enter(job)
        if runs:
            self._resumed.submit(self._run, job)

    def _ask(self, handler: Handler, request: Request) -> Answer | Forward | Later | Parked:
        """An exception must always become an answer: a request without one hangs its caller for ever."""
        try:
            return handler(request)
        except BaseException as error:
            return self._errno_of(request, error)

    def _outcome(self, job: Job) -> Answer | Parked:
        try:
            return job.run()
        except BaseException as error:
            return self._errno_of(job.request, error)

    def _errno_of(self, request: Request, error: BaseException) -> int:
        try:
            return self._failed(request, error)
        except BaseException:
            log.exception("what a request failed with can't be said")
            return errno.EIO

    def _reply(self, unique: int, answer: Answer) -> None:
        """Never raises: an answer that can't be put together becomes EIO."""
        try:
            self._send(unique, answer)
        except BaseException:
            log.exception("request %d was answered EIO: its answer can't be sent", unique)
            try:
                self._send(unique, errno.EIO)
            except BaseException:
                log.exception("request %d stays without an answer", unique)

    def _send(self, unique: int, answer: Answer) -> None:
        try:
            if isinstance(answer, int):
                self._connection.send(OUT_HEADER.pack(OUT_HEADER.size, -answer, unique))
            elif len(answer) <= _JOINED:
                self._connection.send(OUT_HEADER.pack(OUT_HEADER.size + len(answer), 0, unique) + answer)
            else:
                self._connection.send(OUT_HEADER.pack(OUT_HEADER.size + len(answer), 0, unique), answer)
        except OSError as error:
            log.error("the kernel refused the answer to request %d: %s", unique, error)


def _nothing() -> None:
    pass
