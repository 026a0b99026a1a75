"""The command that sets an option of a namespace, and says why where it doesn't."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from hcfs.filesystem.calls import CallError
from hcfs.filesystem.filesystem import Filesystem
from hcfs.filesystem.operations.xattrs import OWN
from hcfs.filesystem.places.control import Answer, Command
from hcfs.store.errors import NoSuchAttribute


class Setting:
    """Sets options as setfattr does, with the caller's rights."""

    def __init__(self, filesystem: Filesystem, namespace: Callable[[str], int]) -> None:
        """namespace: answers the id of a namespace's name; UsageError when there is none."""
        self._filesystem = filesystem
        self._store = filesystem.volume.store
        self._namespace = namespace

    def command(self, command: Command) -> Answer:
        """Words: namespace, option; value, or without it the default. In force, and durable, when this returns."""
        words = command.words
        name, option, value = words.text("namespace"), words.text("option"), words.optional_text("value")
        words.end()
        namespace = self._namespace(name)
        self._store.require_writable()
        attribute = OWN + option.encode(errors="surrogateescape")
        try:
            if value is None:
                with suppress(NoSuchAttribute):
                    self._filesystem.removexattr(namespace, attribute, command.caller)
            else:
                text = value.encode(errors="surrogateescape")
                self._filesystem.setxattr(namespace, attribute, text, command.caller)
        except CallError as error:
            raise CallError(error.errno, f"{name}: the mount refused {option}={value}: {error}") from None
        self._store.commit()
        return {"namespace": name, "option": option, "value": value}
