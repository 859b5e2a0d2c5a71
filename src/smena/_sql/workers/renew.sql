-- Renews the leases of a process: its present incarnation and earlier ones that still have running jobs.
-- An expired incarnation is dead for ever: it is not returned.
update smena.workers set renewed_at = clock_timestamp(),
  claimed_until = clock_timestamp() + make_interval(secs => lease), stopping = :stopping::bool
where incarnation = any (:incarnations::bigint[]) and claimed_until > clock_timestamp()
returning incarnation
