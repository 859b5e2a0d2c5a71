-- Who works: one row per worker process, whatever number of incarnations it has.
select to_jsonb(p)::text from (
  select w.name, min(w.host) as host, min(w.pid) as pid, max(w.release) as release,
    (array_agg(to_jsonb(w.queues) order by w.started_at desc))[1] as queues,
    max(w.concurrency) as concurrency, sum(r.running)::int as running,
    case when max(w.claimed_until) < clock_timestamp() then 'expired'
      when bool_or(w.stopping) then 'stopping' else 'working' end as state,
    max(w.lease) as lease, min(w.started_at) as started_at, max(w.renewed_at) as renewed_at,
    max(w.claimed_until) as claimed_until
  from smena.workers w
  cross join lateral (
    select count(*) as running from smena.claims c cross join lateral (
      select 1 from smena.job j
      where j.lane = c.lane and j.pos between c.lo and c.hi and j.worker = c.incarnation and j.state in ('l', 'm')
      offset 0) j
    where c.incarnation = w.incarnation) r
  group by w.name
  order by w.name) p
