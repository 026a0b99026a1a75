"""Options of a mount: hcfs's own, and the words that mount(8) passes to every filesystem."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hcfs.cache.sizes import parse_size
from hcfs.daemon.words import KERNEL_WORDS, REFUSED, is_word
from hcfs.errors import UsageError
from hcfs.remote.allowed_origins import OPTION as ALLOW_ORIGIN
from hcfs.remote.allowed_origins import checked_prefix

DISCARDS = ("off", "batch")
DATA_PLANE_VARIABLE = "HCFS_DATA_PLANE"
"""The environment's word for `data_plane`, where neither options nor configuration have one."""

SMALLEST_MEMORY = 16 << 20

_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)?")
_TIME_UNITS = {"ms": 0.001, None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class MountOptions:
    """Everything that can be said about a mount. Times in seconds, sizes in bytes, watermarks as parts of 1."""

    commit_interval: float = 1.0
    """Longest time for which something visible isn't durable."""
    staging_ttl: float = 600.0
    """How long a closed version under a staging name waits for its rename."""
    lookup_grace: float = 30.0
    """How long a successful lookup protects a file from eviction."""
    high_watermark: float = 0.95
    """Part of the capacity above which the background evicts..."""
    low_watermark: float = 0.90
    """...down to this part."""
    discard: str = "off"
    """`batch`: the medium is told of freed blocks, in the background."""
    memory: int = 256 << 20
    """Bytes of the pool of I/O buffers."""
    data_plane: str = "auto"
    """`on`: threads serve the hot requests; `off`: pyfuse3 serves all; `auto`: threads, and pyfuse3 where they
    can't."""
    upload_attempts: int = 12
    """How often in a row an upload in the background may fail before it is given up and shown as failed."""
    allow_origin: tuple[str, ...] = ()
    """Prefixes of the origins that namespaces may have; without any, none has one."""
    log: str | None = None
    """File of the daemon's log; None for the default place."""
    config: str | None = None
    """TOML file that was read."""
    words: tuple[str, ...] = field(default=())
    """Words of mount(8), as given."""

    @classmethod
    def parse(
        cls, words: str = "", *, config: str | None = None, memory: int | None = None, log: str | None = None
    ) -> MountOptions:
        """From `-o` words (`a,b=c`), a TOML file with the same names, and the command line's own options; what is said
        on the command line wins over the file. UsageError names what can't be taken, and why."""
        options = cls(config=config).with_words([("data_plane", os.environ.get(DATA_PLANE_VARIABLE, "auto"))])
        if config is not None:
            options = options.with_words(_read_toml(config))
        options = options.with_words(_split(words))
        if memory is not None:
            options = options.with_words([("memory", memory)])
        if log is not None:
            options = replace(options, log=log)
        options.check()
        return options

    @property
    def read_only(self) -> bool:
        """Of ro and rw, the last one counts."""
        given = [word for word in self.words if word in ("ro", "rw")]
        return bool(given) and given[-1] == "ro"

    @property
    def entry_timeout(self) -> float:
        """Seconds for which the kernel may answer for names: with a grace, a third of that, since whoever is answered
        by the kernel must be protected for as long as whoever is answered by the daemon, who protects for both times
        together."""
        return self.lookup_grace / 3 or 60.0

    def kernel_options(self, source: str) -> set[str]:
        """What the FUSE library is to be told."""
        last = {word.removeprefix("no"): word for word in self.words if word in KERNEL_WORDS}  # of dev and nodev
        words = set(last.values()) - {"ro", "rw"}
        if self.read_only:
            words.add("ro")
        # A comma would end the option's value: libfuse takes a backslash for the escape.
        escaped = source.replace("\\", "\\\\").replace(",", "\\,")
        return words | {"default_permissions", f"fsname={escaped}", "subtype=hcfs"}

    def in_force(self) -> dict[str, Any]:
        """Every option with the value in force, as `.hcfs/config.json` shows it."""
        values = asdict(self)
        del values["words"]
        given = (word.partition("=") for word in self.words if word not in ("ro", "rw"))
        return {**values, "ro": self.read_only, **{name: value or True for name, _, value in given}}

    def with_words(self, given: Iterator[tuple[str, Any]] | list[tuple[str, Any]]) -> MountOptions:
        """These options with others set, each a name and its value. UsageError for what can't be taken."""
        changes: dict[str, Any] = {}
        words = list(self.words)
        for name, value in given:
            if is_word(name, value):
                words += [name] * value if isinstance(value, bool) else [f"{name}={value}"]
            elif name in REFUSED and value is False:
                continue
            elif name in REFUSED:
                raise UsageError(f"the mount option {_shown(name, value)!r} can't be kept: {REFUSED[name]}")
            elif name == ALLOW_ORIGIN:  # said as often as wanted
                changes[name] = (*changes.get(name, ()), *_prefixes(name, value))
            elif name in _VALUES:
                changes[name] = _VALUES[name](name, value)
            else:
                known = ", ".join(f"{each}=" for each in (*_VALUES, ALLOW_ORIGIN))
                raise UsageError(f"unknown mount option {_shown(name, value)!r}: hcfs's own are {known}")
        return replace(self, words=tuple(words), **changes)

    def check(self) -> None:
        """UsageError for values that don't fit together."""
        if not 0 < self.low_watermark < self.high_watermark <= 1:
            raise UsageError(
                f"low_watermark={self.low_watermark:g} and high_watermark={self.high_watermark:g} don't fit: give "
                "0 < low < high <= 1, such as 0.90 and 0.95"
            )
        if self.memory < SMALLEST_MEMORY:
            raise UsageError(f"memory={self.memory} is too little for a mount; give at least {SMALLEST_MEMORY >> 20}M")
        if self.discard != "off" and self.read_only:
            raise UsageError("discard=batch can't be kept by a mount that writes nothing; leave out either it or ro")
        for name in ("commit_interval", "staging_ttl"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name}=0 can't be kept; give a time above 0, such as 1s")


def seconds(name: str, value: object) -> float:
    """`10`, `0.5`, `500ms`, `10s`, `5m`, `2h`, `1d`. UsageError for anything else."""
    match = _TIME.fullmatch(str(value))
    if match is None or isinstance(value, bool):
        raise UsageError(f"{_shown(name, value)} is not a time; write 500ms, 10s, 5m, or plain seconds")
    return float(match[1]) * _TIME_UNITS[match[2]]


def part(name: str, value: object) -> float:
    """`0.95` or `95%`. UsageError for anything else."""
    text = str(value)
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1 or isinstance(value, bool):
        raise UsageError(f"{_shown(name, value)} is not a part of the whole; write 0.95 or 95%")
    return number


def size(name: str, value: object) -> int:
    """`4096`, `64K`, `256M`, `1G` (powers of 1024). UsageError for anything else."""
    nbytes = None if isinstance(value, bool) else parse_size(str(value))
    if nbytes is None:
        raise UsageError(f"{_shown(name, value)} is not a size; write 64M, 256M or 1G")
    return nbytes


def attempts(name: str, value: object) -> int:
    """A whole number from 1 to 1000. UsageError for anything else."""
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch("[0-9]{1,4}", text) or not 1 <= int(text) <= 1000:
        raise UsageError(f"{_shown(name, value)} is no number of attempts; write one from 1 to 1000")
    return int(text)


def discard_mode(name: str, value: object) -> str:
    """`off` or `batch`. UsageError for anything else."""
    if value not in DISCARDS:
        raise UsageError(f"{_shown(name, value)} is no way to discard; write discard=off or discard=batch")
    return str(value)


def _prefixes(name: str, value: object) -> list[str]:
    """One prefix, or those of TOML's list."""
    if isinstance(value, bool):
        raise UsageError(f"{name} names no origin; write {name}=s3://BUCKET/PREFIX or {name}=/DIRECTORY")
    return [checked_prefix(each) for each in (value if isinstance(value, list) else [value])]


def _shown(name: str, value: object) -> str:
    return name if value is True else f"{name}={value}"


def _text(_: str, value: object) -> str:
    return str(value)


def _plane(name: str, value: object) -> str:
    if isinstance(value, bool):  # As TOML reads on and off written as true and false.
        return "on" if value else "off"
    if value not in ("auto", "on", "off"):
        raise UsageError(f"{_shown(name, value)} is not known; write auto, on or off")
    return str(value)


_VALUES: Mapping[str, Callable[[str, object], Any]] = {
    "commit_interval": seconds,
    "staging_ttl": seconds,
    "lookup_grace": seconds,
    "high_watermark": part,
    "low_watermark": part,
    "discard": discard_mode,
    "memory": size,
    "data_plane": _plane,
    "upload_attempts": attempts,
    "log": _text,
}


def _split(words: str) -> Iterator[tuple[str, Any]]:
    for word in filter(None, words.split(",")):
        name, equals, value = word.partition("=")
        yield name, value if equals else True


def _read_toml(path: str) -> list[tuple[str, Any]]:
    try:
        with open(path, "rb") as file:
            return list(tomllib.load(file).items())
    except OSError as error:
        raise UsageError(f"the configuration {path} can't be read: {error.strerror}; check --config") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the configuration {path} is not TOML: {error}; write lines such as memory = '1G'") from None
