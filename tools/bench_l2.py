"""Runs `lmcache bench l2` with fs_native on ext4 and on hcfs in turn, on loop devices of the same backing.

Prints medians, spread, ratios and the daemon's CPU time. Only ratios within one run mean anything: machines differ, and
neighbours make them noisy."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HCFS = [str(ROOT / ".venv/bin/python"), "-m", "hcfs"]
BENCH = "import sys; from lmcache.cli.main import main; sys.exit(main())"
QUIET = {"LMCACHE_TRACK_USAGE": "false", "LMCACHE_DISABLE_BANNER": "1"}
KEYS, IN_FLIGHT = 8, 4


def run(*words: object) -> str:
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


@contextmanager
def loop_device(directory: Path, size: str) -> Iterator[str]:
    """A loop device whose file has every page written once: the first touch of a page costs more than later ones."""
    image = directory / "image"
    run("dd", "if=/dev/zero", f"of={image}", "bs=1M", f"count={int(size[:-1]) * 1024}", "status=none")
    device = run("losetup", "--direct-io=on", "-f", "--show", image).strip()
    try:
        yield device
    finally:
        run("losetup", "-d", device)
        image.unlink()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bench(base: Path, scratch: Path, args: argparse.Namespace) -> dict[str, float]:
    """One run: MB/s of stores and of loads. Fails unless every key was stored, loaded and verified."""
    spec = {"type": "fs_native", "base_path": str(base), "num_workers": args.workers, "use_odirect": not args.buffered}
    report = scratch / "report.json"
    words = [
        *(
            "--l2-adapter",
            json.dumps(spec),
            "--num-keys",
            KEYS,
            "--in-flight",
            IN_FLIGHT,
            "--data-size-kb",
            args.size_kb,
        ),
        *(
            "--rounds",
            args.rounds,
            "--warmup-rounds",
            1,
            "--l1-align-bytes",
            4096,
            "--format",
            "json",
            "--output",
            report,
        ),
        "--no-skip-verify",
    ]
    command = [sys.executable, "-W", "ignore", "-c", BENCH, "bench", "l2", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | QUIET)
    metrics = json.loads(report.read_text())["metrics"]
    figures = {section["operation"]: section for name, section in metrics.items() if name.startswith("op_")}
    total = KEYS * IN_FLIGHT * args.rounds
    failed = [name for name in ("Store", "Load") if figures[name]["total_success"] != total]
    if done.returncode or failed or "data verified OK" not in done.stdout:
        sys.exit(f"a run on {base} failed ({', '.join(failed) or 'not verified'}):\n{done.stdout}{done.stderr}")
    megabytes = KEYS * IN_FLIGHT * args.size_kb / 1024
    return {name: megabytes / (figures[name]["duration_p50_ms"] / 1000) for name in ("Store", "Load")}


def measure(args: argparse.Namespace, stack: ExitStack) -> dict[str, Any]:
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hcfs-bench-")))
    backing = Path("/dev/shm") if args.backing == "memory" else scratch
    files = [
        Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hcfs-bench-", dir=backing))) for _ in range(2)
    ]
    ext4_device, hcfs_device = (stack.enter_context(loop_device(each, args.device)) for each in files)
    ext4, hcfs = scratch / "ext4", scratch / "hcfs"
    ext4.mkdir()
    hcfs.mkdir()
    run(*HCFS, "mkfs", hcfs_device)
    run(*HCFS, "mount", hcfs_device, hcfs, "--log", scratch / "hcfs.log")
    stack.callback(run, *HCFS, "umount", hcfs)
    pid = json.loads((hcfs / ".hcfs/status.json").read_text())["pid"]
    rates: dict[str, list[dict[str, float]]] = {"ext4": [], "hcfs": []}
    cpu: list[float] = []
    for number in range(args.repeats):
        run("mkfs.ext4", "-q", "-F", ext4_device)
        run("mount", ext4_device, ext4)
        try:
            rates["ext4"].append(bench(ext4, scratch, args))
        finally:
            run("umount", ext4)
        namespace = hcfs / f"kv{number}"
        namespace.mkdir()
        before, moved = cpu_seconds(pid), json.loads((hcfs / ".hcfs/status.json").read_text())["counters"]
        rates["hcfs"].append(bench(namespace, scratch, args))
        after = json.loads((hcfs / ".hcfs/status.json").read_text())["counters"]
        transferred = sum(after[name] - moved[name] for name in ("read_bytes", "written_bytes")) / (1 << 20)
        cpu.append((cpu_seconds(pid) - before) * 1000 / transferred)
        run("rm", "-rf", namespace)
        if not args.json:
            print(f"round {number + 1} of {args.repeats}: {rates['ext4'][-1]} {rates['hcfs'][-1]}", file=sys.stderr)
    return {"rates": rates, "cpu_ms_per_mib": cpu}


def summary(args: argparse.Namespace, found: dict[str, Any]) -> dict[str, Any]:
    operations = {}
    for name in ("Store", "Load"):
        pairs = [(e[name], h[name]) for e, h in zip(found["rates"]["ext4"], found["rates"]["hcfs"], strict=True)]
        ratios = [h / e for e, h in pairs]
        operations[name.lower()] = {
            "ext4_mb_s": statistics.median(e for e, _ in pairs),
            "hcfs_mb_s": statistics.median(h for _, h in pairs),
            "ratio": statistics.median(ratios),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
        }
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, Linux {platform.release().split('-')[0]}, {platform.machine()}",
        "backing": args.backing,
        "size_kb": args.size_kb,
        "workers": args.workers,
        "direct": not args.buffered,
        "repeats": args.repeats,
        "cpu_ms_per_mib": statistics.median(found["cpu_ms_per_mib"]),
        **operations,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools/bench", description=__doc__)
    parser.add_argument("--backing", choices=["memory", "disk"], default="memory")
    parser.add_argument("--device", default="2G", help="size of each loop device in GiB, such as 2G")
    parser.add_argument("--size-kb", type=int, default=14336, help="bytes of an object, in KiB")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2, help="rounds of LMCache's benchmark in each run")
    parser.add_argument("--repeats", type=int, default=5, help="runs on each filesystem, in turn")
    parser.add_argument("--buffered", action="store_true", help="through the page cache instead of O_DIRECT")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("tools/bench was ended"))  # so that mounts and loops are undone
    with ExitStack() as stack:
        found = summary(args, measure(args, stack))
    if args.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['date']}, {found['machine']}, {args.backing} behind loop devices")
    print(f"{args.size_kb} KiB objects, {args.workers} workers, {args.repeats} runs each")
    for name in ("store", "load"):
        o = found[name]
        print(
            f"{name:5s} ext4 {o['ext4_mb_s']:6.0f} MB/s, hcfs {o['hcfs_mb_s']:6.0f} MB/s, ratio {o['ratio']:.2f}"
            f" ({o['ratio_min']:.2f} to {o['ratio_max']:.2f})"
        )
    print(f"daemon: {found['cpu_ms_per_mib']:.2f} ms of CPU a MiB")


if __name__ == "__main__":
    main()
