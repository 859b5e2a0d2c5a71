-- The newest running jobs below an id, found through the claim ledger.
select r.id, q.name as queue, 'running' as state, r.task
from smena.claims c
cross join lateral (
  select j.id, j.queue, j.task, j.failure_kind from smena.job j
  where j.lane = c.lane and j.pos between c.lo and c.hi and j.worker = c.incarnation and j.state in ('l', 'm')
  offset 0) r
join smena.queues q on q.id = r.queue
where r.id < :before::bigint
  and (:queues::text is null or q.name in (select jsonb_array_elements_text(:queues::text::jsonb)))
  and (:tasks::text is null or r.task in (select jsonb_array_elements_text(:tasks::text::jsonb)))
  and (:kinds::text is null or r.failure_kind in (select jsonb_array_elements_text(:kinds::text::jsonb)))
order by r.id desc limit :most::int
