-- Pauses a queue: its workers stop claiming from it. A queue that is paused stays as it was paused first.
with found as materialized (
  select q.id, q.name, q.paused_at, q.paused_by, q.pause_reason from smena.queues q
  where q.name = :queue::text for update
), paused as (
  update smena.queues q set paused_at = clock_timestamp(), paused_by = session_user, pause_reason = :reason::text
  from found f where q.id = f.id and f.paused_at is null
  returning q.name
), noted as (
  insert into smena.audit (action, queue, reason, before, after)
  select 'pause', name, :reason::text, '{"paused": false}', '{"paused": true}' from paused
)
select exists (select from paused) as changed, f.paused_at::text, f.paused_by, f.pause_reason from found f
