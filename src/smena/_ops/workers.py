"""What a worker and its reapers have in common."""

from __future__ import annotations


def lock_key(incarnation: int) -> dict[str, int]:
    """The advisory lock of an incarnation, as two 32-bit numbers."""
    low = incarnation & 0xFFFFFFFF
    return {"lock_a": incarnation >> 32, "lock_b": low - (1 << 32) if low >= 1 << 31 else low}
