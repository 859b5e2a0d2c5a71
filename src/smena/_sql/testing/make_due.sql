-- Moves the run times of jobs that wait for a later one, as if that much time had passed: the last of them is due now,
-- the others before it. Of some queues or ids, or all of them.
with waiting as (
  select b.lane, b.pos, b.run_at from smena.job_parked b join smena.queues q on q.id = b.queue
  where b.state in ('s', 'b') and b.run_at > clock_timestamp()
    and (:queues::text is null or q.name in (select value from jsonb_array_elements_text(:queues::text::jsonb)))
    and (:ids::text is null or b.id in (select value::bigint from jsonb_array_elements_text(:ids::text::jsonb)))
), passed as (
  select max(w.run_at) - clock_timestamp() as passed from waiting w
)
update smena.job_parked b set run_at = b.run_at - p.passed
from waiting w, passed p
where b.lane = w.lane and b.pos = w.pos
