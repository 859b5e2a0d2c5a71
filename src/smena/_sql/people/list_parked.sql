-- The newest jobs below an id in states that lie outside the log: each queue and state is one walk down an index.
select p.id, q.name as queue, s.state, p.task
from smena.queues q
cross join (select jsonb_array_elements_text(:states::text::jsonb) as state) s
cross join lateral (
  select b.id, b.task from smena.job_parked b
  where b.queue = q.id and b.id < :before::bigint
    and b.state = case s.state when 'scheduled' then 's'::"char" when 'blocked' then 'b' when 'failed' then 'f'
      when 'unknown' then 'u' when 'cancelled' then 'c' end
    and (:tasks::text is null or b.task in (select jsonb_array_elements_text(:tasks::text::jsonb)))
    and (:kinds::text is null or b.failure_kind in (select jsonb_array_elements_text(:kinds::text::jsonb)))
  order by b.id desc limit :most::int) p
where :queues::text is null or q.name in (select jsonb_array_elements_text(:queues::text::jsonb))
order by p.id desc limit :most::int
