-- A dead incarnation, locked for this transaction against other reapers, its own renewals and its own late claims. Who
-- may take it for dead is said in `workers/expired`.
select pg_try_advisory_xact_lock(:lock_a::int, :lock_b::int)
from (
  select w.incarnation from smena.workers w
  where w.incarnation = :dead::bigint and w.claimed_until < clock_timestamp()
    and (w.claimed_until = 'epoch' or exists (
      select from smena.workers me where me.incarnation = :incarnation::bigint and smena.is_witness(me)
        and me.unbroken_since <= clock_timestamp() - make_interval(secs => w.lease)
        and w.claimed_until < clock_timestamp() - make_interval(secs => greatest(me.lease - w.lease, 0))))
  for update skip locked) w
