"""Options of a mount: hcfs's own, a row each, and the words that mount(8) passes to every filesystem."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hcfs.errors import UsageError
from hcfs.options.mount_words import KERNEL_WORDS, REFUSED, is_word
from hcfs.options.table import Option, option, rows
from hcfs.options.values import Number, OriginPrefix, Part, Path, Several, Size, Time, Word

_DISCARD = Word("off", "batch", noun="way to discard")
_PLANE = Word("auto", "on", "off")


@dataclass(frozen=True, slots=True)
class MountOptions:
    """Everything that can be said about a mount. Times in seconds, sizes in bytes, watermarks as parts of 1."""

    commit_interval: float = option(
        Time(zero=False),
        "1s",
        help="longest time for which something visible isn't durable",
        doc="longest time until something visible is durable; `fsync` doesn't wait",
        example="500ms",
    )
    staging_ttl: float = option(
        Time(zero=False),
        "10m",
        help="how long a closed *.tmp waits for its rename",
        doc="how long a closed, unfinished file (`*.tmp`) waits for its rename",
        example="1h",
    )
    lookup_grace: float = option(
        Time(),
        "30s",
        help="how long a lookup protects from eviction",
        doc="how long a lookup protects a file from eviction",
        example="5s",
    )
    high_watermark: float = option(
        Part(),
        "95%",
        help="use of the space above which the oldest objects go ...",
        doc="use of the space above which the background evicts ...",
        example="0.97",
    )
    low_watermark: float = option(Part(), "90%", help="... down to this", doc="... down to this", example="80%")
    discard: str = option(
        _DISCARD,
        "off",
        help="batch: tell the device of freed blocks",
        doc="`batch`: the device is told of [freed blocks](#freed-space)",
        example="batch",
    )
    memory: int = option(
        Size(least=16 << 20),
        "256M",
        help="buffers for I/O",
        doc="buffers for I/O",
        example="1G",
        flag=True,
    )
    upload_attempts: int = option(
        Number(1, 1000),
        "12",
        help="failures in a row after which an upload is given up",
        doc="failures in a row after which an upload is given up",
        example="3",
    )
    allow_origin: tuple[str, ...] = option(
        Several(OriginPrefix()),
        "none",
        help="a prefix of the origins that namespaces may have",
        doc="a prefix of the origins that namespaces may have",
        example="/srv/models",
        several=True,
    )
    data_plane: str = option(
        _PLANE,
        "auto",
        help="on, off: threads or pyfuse3 serve the hot requests",
        doc="who serves the hot requests: threads (`on`), pyfuse3 (`off`)",
        example="off",
        variable="HCFS_DATA_PLANE",
    )
    log: str | None = option(
        Path(),
        "none",
        help="where the daemon writes its log",
        doc="the daemon's log, in a file for each directory unless it is named",
        example="/var/log/hcfs.log",
        flag=True,
    )
    config: str | None = None
    """TOML file that was read."""
    words: tuple[str, ...] = field(default=())
    """Words of mount(8), as given."""

    @classmethod
    def parse(cls, words: str = "", *, config: str | None = None, **flags: object) -> MountOptions:
        """From `-o` words (`a,b=c`), a TOML file with the same names, and the command's own options, None where they
        aren't given; what is said on the command line wins over the file. UsageError names what can't be taken, and
        why."""
        options = cls(config=config)
        for row in rows(cls).values():
            said = os.environ.get(row.variable) if row.variable else None
            if said is not None:
                options = replace(options, **{row.name: row.parse(said, shown=f"{row.variable}={said}")})
        if config is not None:
            options = options.with_words(_read_toml(config))
        options = options.with_words(_split(words))
        options = options.with_words((name, value) for name, value in flags.items() if value is not None)
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

    def with_words(self, given: Iterable[tuple[str, Any]]) -> MountOptions:
        """These options with others set, each a name and its value. UsageError for what can't be taken."""
        table = rows(MountOptions)
        changes: dict[str, Any] = {}
        words = list(self.words)
        for name, value in given:
            if is_word(name, value):
                words += [name] * value if isinstance(value, bool) else [f"{name}={value}"]
            elif name in REFUSED and value is False:
                continue
            elif name in REFUSED:
                raise UsageError(f"the mount option {_shown(name, value)!r} can't be kept: {REFUSED[name]}")
            elif name in table:
                parsed = _parsed(table[name], value)
                changes[name] = (*changes.get(name, ()), *parsed) if table[name].several else parsed
            else:
                known = ", ".join(f"{each}=" for each in table)
                raise UsageError(f"unknown mount option {_shown(name, value)!r}: hcfs's own are {known}")
        return replace(self, words=tuple(words), **changes)

    def check(self) -> None:
        """UsageError for values that don't fit together."""
        if not 0 < self.low_watermark < self.high_watermark <= 1:
            raise UsageError(
                f"low_watermark={self.low_watermark:g} and high_watermark={self.high_watermark:g} don't fit: give "
                "0 < low < high <= 1, such as 0.90 and 0.95"
            )
        if self.discard != "off" and self.read_only:
            raise UsageError("discard=batch can't be kept by a mount that writes nothing; leave out either it or ro")


def _parsed(row: Option, value: object) -> Any:
    """What a word or TOML has for an option. UsageError."""
    shown = _shown(row.name, value)
    if isinstance(value, list) and row.several:
        return tuple(part for each in value for part in row.parse(str(each)))
    if isinstance(value, bool):
        # As TOML reads on and off written as true and false; a word alone is true, too.
        word = "on" if value else "off"
        takes = isinstance(row.value, Word) and word in row.value.words
        return row.parse(word if takes else "", shown=shown)
    if not isinstance(value, str | int | float):
        raise UsageError(f"{shown} can't be set: it isn't one value; give {row.name}={row.example}")
    return row.parse(str(value))


def _shown(name: str, value: object) -> str:
    return name if value is True else f"{name}={value}"


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
