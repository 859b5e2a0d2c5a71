from __future__ import annotations

import hashlib
from uuid import RFC_4122, UUID

from hypothesis import given
from hypothesis import strategies as st

from smena.idempotency import idempotency_key

A = UUID("00000000-0000-0000-0000-000000000007")
B = UUID("00000000-0000-0000-0000-000000000008")


def test_key_never_changes_between_releases() -> None:
    # Keys that a provider has seen must be recognised by the next release: this value is for ever.
    assert idempotency_key(A, 17, 1_700_000_000_000_000) == "38406e60-acf9-8f4a-b8c0-18c916329a46"


def test_key_differs_when_any_part_does() -> None:
    keys = {
        idempotency_key(A, 17, 1_700_000_000_000_000),
        idempotency_key(B, 17, 1_700_000_000_000_000),
        idempotency_key(A, 18, 1_700_000_000_000_000),
        idempotency_key(A, 17, 1_700_000_000_000_001),
        idempotency_key(A, 17, 1_700_000_000_000_000, 1),
        # The parts are separated: 1 and 71 are not 17 and 1.
        idempotency_key(A, 1, 71_700_000_000_000_000),
    }

    assert len(keys) == 6


def test_generation_0_is_the_default() -> None:
    assert idempotency_key(A, 17, 5, 0) == idempotency_key(A, 17, 5)


@given(st.uuids(), st.integers(), st.integers(), st.integers())
def test_key_is_a_version_8_uuid_of_the_digest(installation: UUID, job: int, created: int, generation: int) -> None:
    key = UUID(idempotency_key(installation, job, created, generation))

    assert (key.version, key.variant) == (8, RFC_4122)
    digest = hashlib.sha256(f"{installation}:{job}:{created}:{generation}".encode()).hexdigest()[:32]
    # All but the six bits of version and variant come from the digest.
    fixed = (0xF << 76) | (0b11 << 62)
    assert key.int & ~fixed == int(digest, 16) & ~fixed
