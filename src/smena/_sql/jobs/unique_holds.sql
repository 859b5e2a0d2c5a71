-- Who holds these keys, and may the hold be taken over? It may when its job is no longer active in the hold's own
-- sense, when its job is gone, or when its time is over.
select k.unique_key, k.job_id, k.version,
  case k.mode
    when 'forever' then false
    when 'seconds' then k.expires_at <= clock_timestamp()
    when 'waiting' then coalesce(j.state not in ('s', 'b', 'r'), true)
    else coalesce(j.state not in ('s', 'b', 'r', 'l', 'm'), true)
  end as stale
from smena.unique_keys k
cross join lateral (
  select (select j.state from smena.job j where j.id = k.job_id and (j.pos >= k.job_id or j.pos < 0) limit 1) as state
) j
where k.queue = (select q.id from smena.queues q where q.name = :queue::text)
  and k.unique_key in (select value from jsonb_array_elements_text(:keys::text::jsonb))
