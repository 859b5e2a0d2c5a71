-- Stops a job.
select smena.cancel(:id::bigint, :reason::text)
