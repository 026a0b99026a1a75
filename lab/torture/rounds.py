"""One round of torture: workers, kills while they work, an end, and a look at everything."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

from lab.harness import programs
from lab.harness.mounts import alive
from lab.torture.journal import Tree, read_history
from lab.torture.store import NAMESPACE, TREES, StoreUnderTest
from lab.torture.verify import Finding, check_health, closed, compare, look_at, settled, status_of

ENDS = {"kill": 6, "kill all": 3, "umount": 2, "killed writers": 3, "lazy": 1, "term": 1, "stay": 2, "quiet kill": 1}
"""How a round ends, and how often: the daemon killed under its workers; with all of them; unmounted in order; after all
writers were killed; lazily, under its workers; told to end by SIGTERM; not at all; killed when everything had time to
become durable."""
QUIET = 5.0
"""Seconds beyond the commit interval after which a busy machine has surely committed."""


class Worker:
    """A writer (of `tree`) or a reader (tree -1), and its journal."""

    def __init__(self, module: str, words: list[str], journal: Path, tree: int) -> None:
        self.journal = journal
        self.tree = tree
        self.killed = False
        self.process = subprocess.Popen(
            programs.command(module, *words),
            env=programs.environment(),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        """To a process that may have ended."""
        self.killed = self.killed or number in (signal.SIGKILL, signal.SIGTERM)
        if self.alive:
            self.process.send_signal(number)

    def end(self, *, mount_went: bool) -> str:
        """Wait for the end; what went wrong, if anything did."""
        try:
            _, said = self.process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            stuck = Path(f"/proc/{self.process.pid}/stack")
            with contextlib.suppress(OSError):
                return f"{self.journal.name} hangs: {stuck.read_text()}"
            return f"{self.journal.name} hangs"
        status = self.process.returncode
        if status == -signal.SIGBUS:
            # What a mapping's page is answered with when the daemon has gone.
            return "" if mount_went else f"{self.journal.name}: SIGBUS"
        # SIGUSR1 may come before its handler is there.
        expected = {0, -signal.SIGKILL, -signal.SIGUSR1} | ({3} if mount_went else set())
        if self.killed:
            expected.add(-signal.SIGTERM)
        return "" if status in expected else f"{self.journal.name} ended with {status}: {said.strip()[-2000:]}"


class Round:
    """One of them; `run` raises Finding."""

    def __init__(
        self,
        store: StoreUnderTest,
        number: int,
        directory: Path,
        seed: str,
        workers: tuple[int, int],
        counts: Counter[str],
    ) -> None:
        """workers: how many writers and readers. counts: what happened, over all rounds."""
        self.store = store
        self.directory = directory
        self.seed = f"{seed} {number}"
        self.chance = random.Random(f"round {self.seed}")
        self.counts = counts
        self.writers, self.readers = workers
        self.workers: list[Worker] = []
        self.serial = 0
        self.mount_went = False
        self.over = threading.Event()
        self.looking = threading.Lock()
        """held by whoever has a file of the mount open in this process, or unmounts it"""
        self.troubles: list[str] = []
        self.end = self.chance.choices(list(ENDS), list(ENDS.values()))[0]

    def run(self) -> None:
        """From a mount that serves to one that has been looked at."""
        self.directory.mkdir()
        self.counts[f"end: {self.end}"] += 1
        watcher = threading.Thread(target=self.watch)
        durable_from: int | None = None
        try:
            for tree in range(self.writers):
                self.start_writer(tree)
            for _ in range(self.readers):
                self.start_reader()
            watcher.start()
            self.wait_for_start()
            self.disturb()
            durable_from = self.finish()
        except BaseException as error:
            for worker in self.workers:
                worker.signal(signal.SIGKILL)
            self.mount_went = True
            self.store.take_away()
            if isinstance(error, AssertionError):
                raise Finding(str(error)) from error
            raise
        finally:
            self.over.set()
            for worker in self.workers:
                worker.signal(signal.SIGCONT)
                worker.signal(signal.SIGUSR1)
            wrong = [trouble for worker in self.workers if (trouble := worker.end(mount_went=self.mount_went))]
            if watcher.ident is not None:
                watcher.join()
        for worker in self.workers:
            self.counts["writers killed" if worker.tree >= 0 else "readers killed"] += worker.process.returncode in (
                *(-signal.SIGKILL, -signal.SIGTERM),
            )
        if wrong or self.troubles:
            raise Finding("; ".join(wrong + self.troubles))
        self.verify(durable_from)

    # --- workers ------------------------------------------------------------------------------------------------------

    def start_writer(self, tree: int) -> None:
        """On its own tree, which nobody else changes in this round."""
        self.serial += 1
        before = self.directory / f"before-{tree}.json"
        own: Tree = {path: value for path, value in self.store.known.items() if path.startswith(f"w{tree}/")}
        before.write_text(json.dumps(own))
        journal = self.directory / f"writer-{tree}.journal"
        words = [str(self.store.root), str(journal), str(tree), f"{self.seed} {tree}", str(before)]
        self.workers.append(Worker("lab.torture.worker", [*words, str(int(self.store.evicting))], journal, tree))

    def start_reader(self) -> None:
        """One more."""
        self.serial += 1
        journal = self.directory / f"reader-{self.serial}.journal"
        words = [str(self.store.root), str(journal), f"{self.seed} reader {self.serial}"]
        self.workers.append(Worker("lab.torture.reader", words, journal, -1))

    def wait_for_start(self) -> None:
        """Until all have begun, or one hasn't in a minute."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and any(w.alive and not w.journal.exists() for w in self.workers):
            time.sleep(0.01)

    def watch(self) -> None:
        """The parts of the space sum up at every moment."""
        while not self.over.wait(0.1):
            try:
                with self.looking:
                    status_of(self.store.mount.dir)
                self.counts["status looked at"] += 1
            except Finding as finding:
                self.troubles.append(str(finding))
                return
            except (OSError, ValueError):
                continue

    def disturb(self) -> None:
        """Let them work, and stop and kill some of them meanwhile."""
        ends = time.monotonic() + self.chance.choice([0.3, 1.0, 2.0, 4.0, 8.0]) * self.chance.uniform(0.5, 1.5)
        while (left := ends - time.monotonic()) > 0:
            time.sleep(min(left, self.chance.uniform(0.05, 1.0)))
            alive = [worker for worker in self.workers if worker.alive]
            if not alive:
                return
            worker = self.chance.choice(alive)
            what = self.chance.choices(["kill", "stop", "continue", "umount", "nothing"], [3, 2, 2, 1, 6])[0]
            if what == "kill":
                worker.signal(self.chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
                if worker.tree < 0:
                    self.start_reader()
            elif what == "stop":
                worker.signal(signal.SIGSTOP)
            elif what == "continue":
                for stopped in self.workers:
                    stopped.signal(signal.SIGCONT)
            elif what == "umount":
                self.try_umount()
                if self.mount_went:
                    return

    def try_umount(self) -> None:
        """Refused while anything is open, and then nothing has changed; else the round is over."""
        self.counts["umount tried"] += 1
        self.mount_went = True  # Told before it may be so.
        try:
            with self.looking:
                self.store.umount()
            self.end = "umount"
        except Finding as finding:
            if "is in use" not in str(finding):
                raise
            self.mount_went = False

    # --- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> int | None:
        """End the round its way: None when nothing visible may be lost; else the time up to which what was done is
        durable in any case."""
        mount, end = self.store.mount, self.end
        if not mount.mounted:
            return None
        if end in ("umount", "quiet kill", "stay"):
            self.stop_workers()
        if end in ("kill all", "killed writers"):
            for worker in self.chance.sample(self.workers, len(self.workers)):
                worker.signal(signal.SIGKILL)
                if end == "kill all" and self.chance.random() < 0.3:
                    self.kill_daemon()
        if end in ("kill", "kill all"):
            self.kill_daemon()
            return 0
        if end == "quiet kill":
            quiet = time.monotonic_ns()
            time.sleep(self.store.commit_interval + QUIET)
            self.kill_daemon()
            return quiet
        if end == "killed writers":
            self.wait_for_workers()
            if self.chance.random() < 0.5:
                self.end = "stay"
                return None
        if end in ("umount", "killed writers"):
            with self.looking:
                self.store.umount()
        elif end == "lazy":
            self.mount_went = True
            daemon = mount.pid
            self.must("umount", mount.dir, "--lazy")
            self.stop_workers()
            self.wait_for(daemon)
        elif end == "term":
            self.mount_went = True
            mount.kill(signal.SIGTERM)
            if mount.mounted:
                raise Finding("SIGTERM ended the daemon and left its mount behind")
        return None

    def must(self, *words: str | Path) -> None:
        from lab.harness.cli import hcfs

        result = hcfs(*words, check=False)
        if result.returncode:
            raise Finding(f"hcfs {' '.join(map(str, words))}: {result.stderr.strip()}")

    def kill_daemon(self) -> None:
        """Once."""
        if self.mount_went:
            return
        self.mount_went = True
        self.store.mount.kill()
        self.counts["daemons killed"] += 1

    def stop_workers(self) -> None:
        """After the operation under way."""
        for worker in self.workers:
            worker.signal(signal.SIGCONT)
            worker.signal(signal.SIGUSR1)
        self.wait_for_workers()

    def wait_for_workers(self) -> None:
        """Until the last has ended; `run` asks how."""
        for worker in self.workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(120)

    def wait_for(self, daemon: int) -> None:
        """A daemon whose mount was detached ends with the last user."""
        deadline = time.monotonic() + 60
        while alive(daemon):
            if time.monotonic() > deadline:
                raise Finding(f"the daemon {daemon} is still there, 60 s after its lazily unmounted mount's last user")
            time.sleep(0.02)

    # --- looking ------------------------------------------------------------------------------------------------------

    def verify(self, durable_from: int | None) -> None:
        """Everything against the known state."""
        store = self.store
        history = read_history(sorted(self.directory.glob("*.journal")))
        for operation in history.operations:
            fate = "done" if operation.done < 1 << 62 else "refused" if operation.failed else "interrupted"
            self.counts[f"operations {fate}"] += 1
        self.counts["reads by readers"] += len(history.looks)
        if self.mount_went or self.end != "stay":
            if self.chance.random() < 0.5:
                self.counts["fsck"] += 1
                store.fsck()
            store.keep_copy()
            if self.chance.random() < 0.3:
                self.mount(read_only=True)
                self.compare(history.allowed(store.known, durable_from, store.evicting), read_only=True)
                store.umount()
            self.mount()
            status = settled(store.mount.dir, lambda _: True, "a status")
            if status["staged_objects"] or status["staged_bytes"] or (store.mount.dir / ".hcfs" / "staged").read_text():
                raise Finding(f"something is staged after the mount: {status}")
        found = self.compare(history.allowed(store.known, durable_from, store.evicting))
        wrong = history.wrong_looks(store.known, store.evicting)
        if wrong:
            raise Finding(f"{len(wrong)} reads that nothing explains: {wrong[:4]}")
        store.known = found
        self.must_sync()

    def mount(self, *, read_only: bool = False) -> None:
        """With other options than before."""
        self.counts["mounts"] += 1
        self.store.mount_anew(read_only=read_only)

    def compare(self, allowed: dict[str, set[str | None]], *, read_only: bool = False) -> Tree:
        """The tree that is there, and the space that it takes."""
        store = self.store
        settled(store.mount.dir, lambda _: closed(store.mount.dir), "what close publishes is published")
        if not read_only and store.staging_ttl < 10:
            settled(store.mount.dir, lambda status: not status["staged_objects"], "nothing is staged")
        found = look_at(store.root, self.chance)
        compare(found.tree, allowed)
        self.counts["files verified"] += found.files
        self.counts["bytes verified"] += found.bytes
        if not store.evicting:
            settled(
                store.mount.dir, lambda status: status["used_bytes"] == found.blocks_bytes, "used is what names reach"
            )
        state = "read-only" if read_only else "ok"
        check_health(status_of(store.mount.dir), evicting=store.evicting, state=state)
        loud = store.loud_lines()
        if loud:
            raise Finding(f"the daemon's log: {loud[:8]}")
        return found.tree

    def must_sync(self) -> None:
        """What was found is durable from now on."""
        fd = os.open(self.store.root, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def prepare(store: StoreUnderTest) -> None:
    """Make the namespace and the writers' directories."""
    store.mount_anew()
    (store.mount.dir / NAMESPACE).mkdir()
    for name in ["shared", *(f"w{tree}" for tree in range(TREES))]:
        (store.root / name).mkdir()
        store.known[name] = "d"
    fd = os.open(store.root, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
