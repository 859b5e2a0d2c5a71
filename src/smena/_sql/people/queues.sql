-- Every queue, whether it is paused, and its counts as they were last measured.
select jsonb_build_object(
  'queue', q.name, 'paused_at', q.paused_at, 'paused_by', q.paused_by, 'pause_reason', q.pause_reason,
  'measured_at', max(s.measured_at),
  'counts', coalesce(jsonb_object_agg(s.state, jsonb_build_object(
    'count', s.count, 'capped', s.capped, 'oldest_age', s.oldest_age)) filter (where s.state is not null), '{}'))::text
from smena.queues q left join smena.queue_stats s on s.queue = q.name
group by q.id
order by q.name
