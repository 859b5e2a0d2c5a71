-- One window of the newest jobs below an id, of every state, and those of it that fit. The caller goes on below
-- `reached` until it has enough, so that no statement looks at more than a window, however rare the fit.
with seen as materialized (
  select j.id, j.queue, j.state, j.task, j.failure_kind from smena.job j
  where j.id < :before::bigint
  order by j.id desc limit :window::int
), fit as (
  select s.id, q.name as queue, smena.state_word(s.state) as state, s.task
  from seen s join smena.queues q on q.id = s.queue
  where (:queues::text is null or q.name in (select jsonb_array_elements_text(:queues::text::jsonb)))
    and (:states::text is null or smena.state_word(s.state) in (select jsonb_array_elements_text(:states::text::jsonb)))
    and (:tasks::text is null or s.task in (select jsonb_array_elements_text(:tasks::text::jsonb)))
    and (:kinds::text is null
      or s.state <> 'd' and s.failure_kind in (select jsonb_array_elements_text(:kinds::text::jsonb)))
  order by s.id desc limit :most::int
)
select (select count(*) from seen), (select min(id) from seen), f.*
from (select 1) one left join fit f on true
order by f.id desc
