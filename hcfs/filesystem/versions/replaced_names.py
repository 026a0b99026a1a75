"""Objects that lost their name to another while an open of them may have been under way."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from hcfs.store import Attributes

REPLACED_KEPT = 4096
"""Objects replaced lately whose names are remembered: an open that met one comes within milliseconds"""


@dataclass(frozen=True, slots=True)
class Replaced:
    """What an object was, and under which name.

    The kernel walks to an inode, asks for its attributes to check permissions, and opens it; it repeats all that once
    when the answer is ESTALE. So the first two are still answered, and only the open sends it to the new object."""

    attributes: Attributes
    parent: int
    name: bytes


class ReplacedNames:
    """The latest of them. The filesystem's lock guards it."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[int, Replaced] = OrderedDict()

    def note(self, attributes: Attributes | None, parent: int, name: bytes) -> None:
        """An object, None for none, lost a name to another."""
        if attributes is not None:
            self._by_id[attributes.id] = Replaced(attributes._replace(nlink=0), parent, name)
            if len(self._by_id) > REPLACED_KEPT:
                self._by_id.popitem(last=False)

    def get(self, oid: int) -> Replaced | None:
        """What an object was that lost a name to another lately."""
        return self._by_id.get(oid)
