-- A dead incarnation, locked for this transaction against other reapers and against its own late claims.
select pg_try_advisory_xact_lock(:lock_a::int, :lock_b::int)
from (
  select w.incarnation from smena.workers w
  where w.incarnation = :incarnation::bigint and w.claimed_until < clock_timestamp()
  for update skip locked) w
