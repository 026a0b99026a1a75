"""Names and messages of others, as they may be shown: on a terminal, in a table, in a log."""

from __future__ import annotations

# What isn't a control or format character by Unicode's categories, and shows nothing all the same: fillers, variation
# selectors and the like (DerivedCoreProperties.txt, Default_Ignorable_Code_Point), and the blank of Braille.
_UNSEEN = frozenset(
    chr(code)
    for codes in (
        (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
        *(range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0)),
    )
    for code in codes
)


def printable(text: str) -> str:
    r"""The text in one line that a terminal obeys in nothing and shows completely: line breaks, escape sequences,
    marks that turn the direction of writing and characters that can't be seen are written as in Python (`\n`, `\x1b`,
    `\u202e`), bytes that are no UTF-8 as `\xff`. A backslash stays as it is, so that a second pass changes nothing."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each.isprintable() and each not in _UNSEEN else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    code = ord(character)
    # A byte that os.fsdecode couldn't read.
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else ascii(character)[1:-1]
