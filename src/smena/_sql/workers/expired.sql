-- Dead incarnations: their leases ran out on the database clock. Asked by `incarnation`, which must itself have renewed
-- without a gap for a lease term, on a server that has been up that long: else nobody is taken for dead. Where leases
-- differ the longer one counts, for both: who renews seldom does not see a short outage, and who renews often has seen
-- only a short while. What was reaped before is dead for everybody. Those `seen` in this pass are left out: what is in
-- somebody's hands is not waited for.
select w.incarnation, w.name from smena.workers w
where w.claimed_until < clock_timestamp() and w.incarnation <> all (:seen::bigint[])
  and (w.claimed_until = 'epoch' or exists (
    select from smena.workers me where me.incarnation = :incarnation::bigint and smena.is_witness(me)
      and me.unbroken_since <= clock_timestamp() - make_interval(secs => w.lease)
      and w.claimed_until < clock_timestamp() - make_interval(secs => greatest(me.lease - w.lease, 0))))
order by w.claimed_until limit 10
