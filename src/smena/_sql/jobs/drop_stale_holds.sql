-- Drops holds found stale, unless somebody took them over or revived their job since: the version says so.
delete from smena.unique_keys k
using jsonb_to_recordset(:holds::text::jsonb) as x(u text, v int)
where k.queue = (select q.id from smena.queues q where q.name = :queue::text)
  and k.unique_key = x.u and k.version = x.v
