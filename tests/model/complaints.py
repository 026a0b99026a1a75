"""What hcfs logs of its own bugs: calls that failed unexpectedly, background work too."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Listener(logging.Handler):
    def __init__(self, heard: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self._heard.append(self.format(record))


@contextmanager
def listening(heard: list[str]) -> Iterator[None]:
    listener = _Listener(heard)
    logging.getLogger("hcfs").addHandler(listener)
    try:
        yield
    finally:
        logging.getLogger("hcfs").removeHandler(listener)
