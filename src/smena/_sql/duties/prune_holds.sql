-- Drops a page of unique holds whose job is done or gone. A failed or cancelled job may be requeued and keeps the kind
-- of its hold until then. The version says if somebody took it meanwhile.
with page as materialized (
  select k.queue, k.unique_key, k.job_id, k.version, k.mode, k.expires_at
  from smena.unique_keys k
  where (k.queue, k.unique_key) > (:after_queue::int, :after_key::text)
  order by k.queue, k.unique_key limit :page::int
), stale as materialized (
  select p.* from page p cross join lateral (
    select (select j.state from smena.job j where j.id = p.job_id and (j.pos >= p.job_id or j.pos < 0) limit 1) as state
  ) s
  where case p.mode when 'forever' then false when 'seconds' then p.expires_at <= clock_timestamp()
    else coalesce(s.state = 'd', true) end
), gone as (
  delete from smena.unique_keys k using stale s
  where k.queue = s.queue and k.unique_key = s.unique_key and k.job_id = s.job_id and k.version = s.version
)
select (select count(*) from page), l.queue, l.unique_key
from (select 1) one left join (select queue, unique_key from page order by queue desc, unique_key desc limit 1) l on true
