"""Text that PostgreSQL can store, and no more of it than is useful. Limits are bytes of UTF-8."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def storable(text: str) -> str:
    """`text` with what jsonb refuses made visible: NUL as ␀, half a surrogate pair as the replacement character."""
    text = text.replace("\0", "\u2400")
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def cut(text: str, limit: int) -> str:
    """The head of `text`, storable."""
    head = storable(text[:limit])
    if len(text) <= limit and len(head.encode()) <= limit:
        return head
    note = f"… ({len(text):,} characters)"
    return _head(head, limit - len(note.encode())) + note


def cut_middle(text: str, limit: int) -> str:
    """Head and tail of `text`, storable: a traceback's last lines say the most."""
    if len(text) <= limit and len((whole := storable(text)).encode()) <= limit:
        return whole
    note = "\n… cut …\n"
    room = limit - len(note.encode())
    tail = storable(text[-(room - room // 2) :]).encode()[-(room - room // 2) :].decode(errors="ignore")
    return _head(storable(text[: room // 2]), room // 2) + note + tail


def _head(text: str, limit: int) -> str:
    return text.encode()[: max(limit, 0)].decode(errors="ignore")
