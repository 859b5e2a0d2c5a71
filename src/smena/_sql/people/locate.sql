-- Which of these jobs exist, and what they are, in the order of the ids given.
select v.id, q.name as queue, smena.state_word(v.state) as state, v.task
from jsonb_array_elements_text(:ids::text::jsonb) with ordinality as w(id, n)
cross join lateral (
  select j.id, j.queue, j.state, j.task from smena.job j where j.id = w.id::bigint offset 0) v
join smena.queues q on q.id = v.queue
order by w.n
