-- Renews the leases of a process: its present incarnation and earlier ones that still have running jobs.
-- An incarnation that expired while others could renew is dead for ever and is not returned: somebody might take it for
-- dead by the rule in `workers/expired`, or has (its lease ended at the epoch). When nobody could, the database was away:
-- the lease is given back to the living, and nobody may reap until one term later.
-- A renewal that comes late, half a lease after the one before, may mean that the database was away for a while. Then
-- somebody who was about to renew when it went may have lost a lease through no fault of his own, so who renews late is
-- no witness for one term.
update smena.workers w set renewed_at = clock_timestamp(),
  unbroken_since = case when w.renewed_at > clock_timestamp() - make_interval(secs => w.lease / 2)
    then w.unbroken_since else clock_timestamp() end,
  claimed_until = clock_timestamp() + make_interval(secs => w.lease), stopping = :stopping::bool
where w.incarnation = any (:incarnations::bigint[])
  and (w.claimed_until > clock_timestamp() or w.claimed_until > 'epoch' and not exists (
    select from smena.workers o where smena.is_witness(o)
      and o.unbroken_since <= clock_timestamp() - make_interval(secs => w.lease)
      and w.claimed_until < clock_timestamp() - make_interval(secs => greatest(o.lease - w.lease, 0))))
returning w.incarnation
