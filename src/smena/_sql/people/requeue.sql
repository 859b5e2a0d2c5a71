-- Starts a new cycle for a finished job.
select smena.requeue(:id::bigint, :reason::text, :new_key::bool)
