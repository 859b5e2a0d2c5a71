-- Is anything of these queues ready, running or due? Waiting for a later time does not count.
select exists (
    select from smena.lanes l join smena.queues q on q.id = l.queue left join smena.floors f on f.lane = l.id
    cross join lateral (
      select 1 from smena.job j
      where j.lane = l.id and j.pos > coalesce(f.floor, 0) and j.state in ('r', 'l', 'm') order by j.pos limit 1) r
    where :queues::text[] is null or q.name = any (:queues::text[]))
  or exists (
    select from smena.claims c cross join lateral (
      select 1 from smena.job j join smena.queues q on q.id = j.queue
      where j.lane = c.lane and j.pos between c.lo and c.hi and j.worker = c.incarnation and j.state in ('l', 'm')
        and (:queues::text[] is null or q.name = any (:queues::text[])) limit 1) r)
  or exists (
    select from smena.job_parked b join smena.queues q on q.id = b.queue
    where b.state = 's' and b.run_at <= clock_timestamp() and (:queues::text[] is null or q.name = any (:queues::text[])))
  or exists (
    select from smena.job_parked b join smena.queues q on q.id = b.queue
    where b.state = 'b' and (:queues::text[] is null or q.name = any (:queues::text[]))
      and not exists (select from smena.order_heads h where h.queue = b.queue and h.order_key = b.order_key))
