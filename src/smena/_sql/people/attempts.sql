-- The last attempts of a job that did not end in done, newest first.
select to_jsonb(a)::text from (
  select attempt, outcome, kind, side, detail, worker, started_at, finished_at from smena.attempts
  where job_id = :id::bigint
  order by finished_at desc, attempt desc limit :most::int) a
