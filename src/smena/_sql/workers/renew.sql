-- Renews the leases of a process: its present incarnation and earlier ones that still have running jobs.
-- An incarnation that expired while others could renew is dead for ever and is not returned. When nobody could, the
-- database was away: the lease is given back to the living, and nobody may reap until one term later.
update smena.workers w set renewed_at = clock_timestamp(),
  unbroken_since = case when w.claimed_until > clock_timestamp() then w.unbroken_since else clock_timestamp() end,
  claimed_until = clock_timestamp() + make_interval(secs => w.lease), stopping = :stopping::bool
where w.incarnation = any (:incarnations::bigint[])
  and (w.claimed_until > clock_timestamp() or not exists (select from smena.workers o where smena.is_witness(o)))
returning w.incarnation
