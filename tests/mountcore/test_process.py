"""Processes behind thread ids, and how they end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from hcfs.host.process import has_ended, is_alive, is_running, process_of, was_killed


def test_a_thread_belongs_to_its_process() -> None:
    found = []
    thread = threading.Thread(target=lambda: found.append(process_of(threading.get_native_id())))
    thread.start()
    thread.join()
    me = process_of(os.getpid())
    assert me is not None
    assert found == [me]
    assert is_alive(me)
    assert is_running(me)
    assert not has_ended(me)
    assert not was_killed(me)


def test_what_cannot_be_seen() -> None:
    assert process_of(0) is None
    assert process_of(1 << 22) is None


def test_ends() -> None:
    for program, killed in (
        ("pass", False),
        ("import os; os._exit(9)", False),
        ("import os; os.kill(os.getpid(), 9)", True),
    ):
        with subprocess.Popen([sys.executable, "-S", "-c", "input();" + program], stdin=subprocess.PIPE) as child:
            process = process_of(child.pid)
            assert process is not None
            assert child.stdin is not None
            child.stdin.write(b"\n")
            child.stdin.close()
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            assert was_killed(process) is killed
            assert is_alive(process)
            assert not is_running(process)
            assert has_ended(process)
            child.wait()
            assert not is_alive(process)
            assert not was_killed(process)
