-- Resumes a queue.
with found as materialized (
  select q.id, q.name, q.paused_at, q.paused_by, q.pause_reason from smena.queues q
  where q.name = :queue::text for update
), resumed as (
  update smena.queues q set paused_at = null, paused_by = null, pause_reason = null
  from found f where q.id = f.id and f.paused_at is not null
  returning f.name, f.paused_at, f.paused_by, f.pause_reason
), noted as (
  insert into smena.audit (action, queue, reason, before, after)
  select 'resume', name, :reason::text, jsonb_build_object(
    'paused', true, 'paused_at', paused_at, 'paused_by', paused_by, 'pause_reason', pause_reason), '{"paused": false}'
  from resumed
)
select exists (select from resumed) as changed, f.paused_at::text, f.paused_by, f.pause_reason from found f
