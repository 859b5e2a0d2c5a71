"""Texts of other people, made fit for a terminal.

Arguments, messages and names may hold anything. Letters of every script are shown as they are; what would move the
cursor, set colours, beep, or turn the reading direction around is shown as its escape.
"""

from __future__ import annotations

import unicodedata

# Format characters that are part of ordinary spelling: joiners, and the signs that stand before Arabic, Syriac and
# Kaithi numbers.
_SPELLING = {0x200C, 0x200D, *range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
_NAMED = {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r"}


class _Escapes(dict[int, str]):
    """A table for `str.translate` that fills itself."""

    def __missing__(self, code: int) -> str:
        self[code] = shown = self._escape(code) if _acts(code) else chr(code)
        return shown

    def _escape(self, code: int) -> str:
        if code in _NAMED:
            return _NAMED[code]
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class _JsonEscapes(_Escapes):
    """The same characters, as JSON writes them, so that the value stays the same."""

    def _escape(self, code: int) -> str:
        if code < 0x10000:
            return f"\\u{code:04x}"
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def _acts(code: int) -> bool:
    """Whether a terminal does something else with this character than show it."""
    category = unicodedata.category(chr(code))
    return category in ("Cc", "Cs", "Zl", "Zp") or (category == "Cf" and code not in _SPELLING)


_ONE_LINE = _Escapes()
_LINES = _Escapes({0x0A: "\n", 0x09: "    "})
_JSON = _JsonEscapes({0x0A: "\n"})


def one_line(text: object) -> str:
    """`text` on one line, with nothing in it that a terminal obeys.

    >>> one_line("a\\nb\\x1b[31m")
    'a\\\\nb\\\\x1b[31m'
    """
    return str(text).translate(_ONE_LINE)


def lines(text: object) -> str:
    """The same, with its line breaks kept."""
    return str(text).replace("\r\n", "\n").translate(_LINES)


def json_line(document: str) -> str:
    """JSON whose strings show nothing to a terminal that it would obey. The values are the same."""
    return document.translate(_JSON)
