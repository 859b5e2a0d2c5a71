"""The key under which another system recognises a job that comes twice."""

from __future__ import annotations

from hashlib import sha256
from uuid import UUID


def idempotency_key(installation: UUID, job_id: int, created_us: int, generation: int = 0) -> str:
    """The job's key: the same on each attempt and requeue, another in each installation and generation.

    `created_us` is the job's creation in microseconds since 1970; `generation` grows when a job must truly be done
    again. The key is a UUID of version 8 (RFC 9562) made of the first bytes of a SHA-256. The usual version 5 is made
    with SHA-1, which PostgreSQL has only in an extension, and the view of jobs must show the same key.

    >>> idempotency_key(UUID(int=7), 17, 1_700_000_000_000_000)
    '38406e60-acf9-8f4a-b8c0-18c916329a46'
    """
    digest = bytearray(sha256(f"{installation}:{job_id}:{created_us}:{generation}".encode("ascii")).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return str(UUID(bytes=bytes(digest)))
