-- A dead incarnation, locked for this transaction against other reapers, its own renewals and its own late claims.
select pg_try_advisory_xact_lock(:lock_a::int, :lock_b::int)
from (
  select w.incarnation from smena.workers w
  where w.incarnation = :dead::bigint and w.claimed_until < clock_timestamp()
    and exists (select from smena.workers me where me.incarnation = :incarnation::bigint and smena.is_witness(me))
  for update skip locked) w
