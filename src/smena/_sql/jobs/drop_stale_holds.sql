-- Drops holds found stale, unless somebody took them over or revived their job since: the job and the version say so.
-- In sorted order, so that two who drop the same holds do not wait for each other in a circle.
with doomed as materialized (
  select k.queue, k.unique_key
  from smena.unique_keys k join jsonb_to_recordset(:holds::text::jsonb) as x(u text, j bigint, v bigint)
    on k.unique_key = x.u
  where k.queue = (select q.id from smena.queues q where q.name = :queue::text)
    and k.job_id = x.j and k.version = x.v
  order by k.unique_key
  for update of k
)
delete from smena.unique_keys k using doomed d
where k.queue = d.queue and k.unique_key = d.unique_key
