-- The newest ready jobs below an id. Each lane is walked from its head down to its floor; a lane with more than `cap`
-- ready jobs is not walked to its end, and then `full` says that the answer may lack some.
with ready as materialized (
  select l.id as lane, l.queue, r.* from smena.lanes l
  left join smena.floors f on f.lane = l.id
  cross join lateral (
    select j.id, j.task, j.failure_kind from smena.job j
    where j.lane = l.id and j.pos > coalesce(f.floor, 0) and j.state = 'r'
    order by j.pos desc limit :cap::int + 1) r
  where :queues::text is null or l.queue in (
    select q.id from smena.queues q where q.name in (select jsonb_array_elements_text(:queues::text::jsonb)))
), fit as (
  select r.id, q.name as queue, 'ready' as state, r.task
  from ready r join smena.queues q on q.id = r.queue
  where r.id < :before::bigint
    and (:tasks::text is null or r.task in (select jsonb_array_elements_text(:tasks::text::jsonb)))
    and (:kinds::text is null or r.failure_kind in (select jsonb_array_elements_text(:kinds::text::jsonb)))
  order by r.id desc limit :most::int
)
select exists (select from ready group by lane having count(*) > :cap::int) as full, f.*
from (select 1) one left join fit f on true
order by f.id desc
