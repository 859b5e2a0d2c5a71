-- Removes a job and its history.
select smena.delete_job(:id::bigint, :reason::text)
