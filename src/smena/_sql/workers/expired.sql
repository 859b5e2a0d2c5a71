-- Dead incarnations: their leases ran out on the database clock. Asked by `incarnation`, which must itself have renewed
-- without a gap for a lease term, on a server that has been up that long: else nobody is taken for dead. Those `seen`
-- in this pass are left out: what is in somebody's hands is not waited for.
select w.incarnation, w.name from smena.workers w
where w.claimed_until < clock_timestamp() and w.incarnation <> all (:seen::bigint[])
  and exists (select from smena.workers me where me.incarnation = :incarnation::bigint and smena.is_witness(me))
order by w.claimed_until limit 10
