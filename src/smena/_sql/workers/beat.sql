-- What a worker looks at once a second: positions drawn, its lanes with their floors, pauses, cancel requests, and
-- whether it holds the maintenance lease, which only avoids double effort.
with held as (
  update smena.duties set holder = :incarnation::bigint, held_until = clock_timestamp() + interval '3 seconds',
    ticked_at = clock_timestamp()
  where name = 'maintenance' and :maintain::bool
    and (holder = any (:incarnations::bigint[]) or held_until < clock_timestamp())
  returning name
)
select json_build_object(
  'head', (select last_value from smena.pos_seq),
  'maintains', exists (select from held),
  'server_up', date_part('epoch', clock_timestamp() - pg_postmaster_start_time()),
  'lanes', (
    select coalesce(json_agg(json_build_array(l.id, q.name, l.priority, l.kind, f.floor, f.straggler,
      q.paused_at is not null)), '[]')
    from smena.lanes l join smena.queues q on q.id = l.queue left join smena.floors f on f.lane = l.id
    where :queues::text[] is null or q.name = any (:queues::text[])),
  'cancels', (
    select coalesce(json_agg(json_build_array(c.job_id, c.pos, c.reason)), '[]')
    from smena.cancel_requests c where c.worker = any (:incarnations::bigint[]))
)::text
