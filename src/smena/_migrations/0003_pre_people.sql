-- What people and other languages use: the view smena.jobs and the functions behind it.

-- The same key as smena.idempotency.idempotency_key computes: a version 8 UUID from SHA-256.
create function smena.idempotency_key(installation uuid, job_id bigint, created_us bigint, generation int) returns text
language sql immutable parallel safe as $$
  select encode(set_byte(set_byte(d, 6, (get_byte(d, 6) & 15) | 128), 8, (get_byte(d, 8) & 63) | 128), 'hex')::uuid::text
  from (select substring(sha256((installation::text || ':' || job_id || ':' || created_us || ':' || generation)::bytea)
    for 16) as d) h
$$;

create function smena.state_word(state "char") returns text
language sql immutable parallel safe as $$
  select case state when 'r' then 'ready' when 'd' then 'done' when 'l' then 'running' when 'm' then 'running'
    when 's' then 'scheduled' when 'b' then 'blocked' when 'f' then 'failed' when 'u' then 'unknown'
    when 'c' then 'cancelled' end
$$;

create view smena.jobs as
select
  j.id,
  q.name as queue,
  j.task,
  smena.state_word(j.state) as state,
  l.priority,
  j.attempt,
  j.max_attempts,
  coalesce(j.attempts_before, 0) + j.attempt as attempts_total,
  coalesce(j.crashes, 0) as crashes,
  coalesce(j.snoozes, 0) as snoozes,
  coalesce(j.requeues, 0) as requeues,
  coalesce(j.run_at, j.created_at) as run_at,
  j.planned_at,
  j.created_at,
  j.started_at,
  j.finished_at,
  case when j.state in ('l', 'm') then
    (select w.claimed_until from smena.workers w where w.incarnation = j.worker) end as claimed_until,
  case when j.worker is not null then coalesce(
    (select w.name from smena.workers w where w.incarnation = j.worker), to_hex(j.worker)) end as worker,
  j.args,
  j.headers,
  j.result,
  j.order_key,
  j.unique_key,
  coalesce(j.idempotency_key, smena.idempotency_key(
    (select i.id from smena.installation i), j.id,
    (date_part('epoch', j.created_at) * 1000000)::bigint, coalesce(j.generation, 0))) as idempotency_key,
  j.schedule,
  case when j.state <> 'd' then j.failure_kind end as failure_kind,
  case when j.state <> 'd' then j.failure_side end as failure_side,
  case when j.state <> 'd' and j.failure_kind is not null then
    (select a.detail from smena.attempts a where a.job_id = j.id and a.kind is not null
     order by a.finished_at desc limit 1) end as failure_detail,
  case when j.state = 'f' then j.finished_at end as failed_at
from smena.job j
join smena.lanes l on l.id = j.lane
join smena.queues q on q.id = j.queue;

create view smena.queue_stats as
select q.name as queue, c.state, c.count, c.capped, c.oldest_age, c.measured_at
from smena.queue_counts c join smena.queues q on q.id = c.queue;

-- The lane of a queue, made when it is first used.
create function smena.lane(queue_name text, prio int, lane_kind "char" default 'n') returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  found_lane int;
begin
  select l.id into found_lane from smena.lanes l join smena.queues q on q.id = l.queue
    where q.name = queue_name and l.priority = prio and l.kind = lane_kind;
  if found_lane is null then
    insert into smena.queues (name) values (queue_name) on conflict do nothing;
    insert into smena.lanes (queue, priority, kind)
      select q.id, prio, k.kind from smena.queues q, unnest(array['n', 'r', 's']::"char"[]) k(kind)
      where q.name = queue_name order by k.kind on conflict do nothing;
    select l.id into found_lane from smena.lanes l join smena.queues q on q.id = l.queue
      where q.name = queue_name and l.priority = prio and l.kind = lane_kind;
  end if;
  return found_lane;
end $$;

create function smena.returned_lane(of_lane int) returns int
language sql stable as $$
  select r.id from smena.lanes l join smena.lanes r on r.queue = l.queue and r.priority = l.priority and r.kind = 'r'
  where l.id = of_lane
$$;

-- Locks the row of a job and returns it. A row that moves meanwhile raises 40001: the caller runs again.
create function smena.lock_job(job_id bigint) returns smena.job
language plpgsql as $$
declare
  j smena.job;
begin
  select * into j from smena.job where id = job_id and (pos >= job_id or pos < 0) for update;
  return j;
end $$;

-- Takes (or keeps) the unique hold of a job that becomes active again. False: another active job has it.
create function smena.take_unique_hold(j smena.job) returns bool
language plpgsql as $$
declare
  hold smena.unique_keys;
  other "char";
begin
  if j.unique_key is null then
    return true;
  end if;
  select * into hold from smena.unique_keys k where k.queue = j.queue and k.unique_key = j.unique_key for update;
  if not found then
    insert into smena.unique_keys (queue, unique_key, job_id, mode) values (j.queue, j.unique_key, j.id, 'active')
      on conflict do nothing;
    return found;
  end if;
  if hold.job_id <> j.id then
    select state into other from smena.job where id = hold.job_id and (pos >= hold.job_id or pos < 0);
    if hold.mode in ('forever', 'seconds') and (hold.expires_at is null or hold.expires_at > clock_timestamp()) then
      return false;
    end if;
    if other in ('s', 'b', 'r') or (other in ('l', 'm') and hold.mode = 'active') then
      return false;
    end if;
  end if;
  update smena.unique_keys k set job_id = j.id, version = version + 1
    where k.queue = j.queue and k.unique_key = j.unique_key;
  return true;
end $$;

create function smena.release_head(j smena.job) returns void
language sql as $$
  delete from smena.order_heads h where h.queue = j.queue and h.order_key = j.order_key and h.job_id = j.id
$$;

create function smena.write_audit(action text, j smena.job, reason text, after jsonb) returns void
language sql as $$
  insert into smena.audit (action, job_id, reason, before, after)
  values (action, j.id, reason,
    jsonb_build_object('state', smena.state_word(j.state), 'attempt', j.attempt, 'failure_kind', j.failure_kind), after)
$$;

-- Stops a job. Returns cancelled, requested (it runs: its worker is told) or refused: why.
create function smena.cancel(job_id bigint, reason text default null) returns text
language plpgsql as $$
declare
  j smena.job := smena.lock_job(job_id);
begin
  if j.id is null then
    return 'refused: no job ' || job_id;
  elsif j.state in ('l', 'm') then
    insert into smena.cancel_requests (job_id, pos, worker, reason) values (job_id, j.pos, j.worker, reason)
      on conflict on constraint cancel_requests_pkey do update
      set pos = excluded.pos, worker = excluded.worker, reason = excluded.reason;
    perform smena.write_audit('cancel', j, reason, '{"state": "running", "cancel": "requested"}');
    return 'requested';
  elsif j.state not in ('s', 'b', 'r') then
    return 'refused: job ' || job_id || ' is ' || smena.state_word(j.state);
  end if;
  update smena.job set state = 'c', pos = -id, finished_at = clock_timestamp() where lane = j.lane and pos = j.pos;
  perform smena.release_head(j);
  insert into smena.attempts (job_id, attempt, pos, outcome, detail)
    values (j.id, coalesce(j.attempts_before, 0) + j.attempt, j.pos, 'cancelled', jsonb_build_object('reason', reason));
  perform smena.write_audit('cancel', j, reason, '{"state": "cancelled"}');
  return 'cancelled';
end $$;

-- Starts a new cycle for a finished job: attempt 0, the same idempotency key unless new_key.
-- Returns requeued or refused: why.
create function smena.requeue(job_id bigint, reason text default null, new_key bool default false) returns text
language plpgsql as $$
declare
  j smena.job := smena.lock_job(job_id);
  ordered bool;
begin
  if j.id is null then
    return 'refused: no job ' || job_id;
  elsif j.state = 'u' then
    return 'refused: job ' || job_id || ' is unknown: its effect may have happened; say what did with smena.resolve';
  elsif j.state = 'd' and not new_key then
    return 'refused: job ' || job_id || ' is done: repeating it needs a new idempotency key (new_key)';
  elsif j.state not in ('f', 'c', 'd') then
    return 'refused: job ' || job_id || ' is ' || smena.state_word(j.state);
  elsif not smena.take_unique_hold(j) then
    return 'refused: another active job holds unique key ' || j.unique_key;
  end if;
  -- With an order key it waits its turn again, unless it blocks the key itself.
  ordered := j.order_key is not null and not exists (
    select from smena.order_heads h where h.queue = j.queue and h.order_key = j.order_key and h.job_id = j.id);
  update smena.job set
      state = case when ordered then 'b'::"char" else 'r' end,
      pos = case when ordered then -id else nextval('smena.pos_seq') end,
      lane = smena.returned_lane(j.lane),
      attempts_before = coalesce(attempts_before, 0) + attempt, attempt = 0,
      requeues = coalesce(requeues, 0) + 1,
      generation = case when new_key then coalesce(generation, 0) + 1 else generation end,
      idempotency_key = case when new_key then null else idempotency_key end,
      run_at = clock_timestamp(), expires_at = null, unknown_since = null,
      worker = null, started_at = null, finished_at = null, result = null, failure_kind = null, failure_side = null
    where lane = j.lane and pos = j.pos;
  perform smena.write_audit('requeue', j, reason, jsonb_build_object('state', 'ready', 'new_key', new_key));
  return 'requeued';
end $$;

-- Says what really happened to an unknown job: done, failed, or retry (nothing happened; run it again, same key).
create function smena.resolve(job_id bigint, outcome text, reason text) returns text
language plpgsql as $$
declare
  j smena.job := smena.lock_job(job_id);
begin
  if j.id is null then
    return 'refused: no job ' || job_id;
  elsif j.state <> 'u' then
    return 'refused: job ' || job_id || ' is ' || smena.state_word(j.state);
  elsif outcome not in ('done', 'failed', 'retry') or outcome is null then
    return 'refused: the outcome is done, failed or retry';
  elsif coalesce(reason, '') = '' then
    return 'refused: say in the reason how you know';
  elsif outcome = 'retry' and not smena.take_unique_hold(j) then
    return 'refused: another active job holds unique key ' || j.unique_key;
  end if;
  -- A head that was unknown stays the head of its order key while it runs again.
  update smena.job set
      state = case outcome when 'done' then 'd'::"char" when 'failed' then 'f' else 'r' end,
      pos = case when outcome = 'failed' then pos else nextval('smena.pos_seq') end,
      lane = case when outcome = 'retry' then smena.returned_lane(j.lane) else lane end,
      attempt = case when outcome = 'retry' and attempt >= max_attempts then attempt - 1 else attempt end,
      worker = case when outcome = 'retry' then null else worker end,
      finished_at = case when outcome = 'retry' then null else clock_timestamp() end
    where lane = j.lane and pos = j.pos;
  if outcome = 'done' or outcome = 'failed' and j.after_failed is distinct from 'b' then
    perform smena.release_head(j);
  end if;
  perform smena.write_audit('resolve', j, reason, jsonb_build_object('outcome', outcome));
  return 'resolved';
end $$;

-- Removes a job and its history. Returns deleted or refused: why.
create function smena.delete_job(job_id bigint, reason text default null) returns text
language plpgsql as $$
declare
  j smena.job := smena.lock_job(job_id);
begin
  if j.id is null then
    return 'refused: no job ' || job_id;
  elsif j.state in ('l', 'm') then
    return 'refused: job ' || job_id || ' is running: cancel it first';
  elsif j.state = 'u' then
    return 'refused: job ' || job_id || ' is unknown: resolve it first';
  end if;
  delete from smena.job where lane = j.lane and pos = j.pos;
  delete from smena.attempts a where a.job_id = j.id;
  delete from smena.unique_keys k where k.queue = j.queue and k.unique_key = j.unique_key and k.job_id = j.id;
  perform smena.release_head(j);
  perform smena.write_audit('delete', j, reason, null);
  return 'deleted';
end $$;

-- Corrections through the view: args, run_at, priority, queue, and state to ready or cancelled.
create function smena.correct_job() returns trigger
language plpgsql as $$
declare
  j smena.job;
  answer text;
  to_lane int;
  to_state "char";
begin
  if to_jsonb(new) - '{args,run_at,priority,queue,state}'::text[]
      is distinct from to_jsonb(old) - '{args,run_at,priority,queue,state}'::text[] then
    raise exception 'smena.jobs: only args, run_at, priority, queue and state can be corrected'
      using errcode = 'feature_not_supported';
  end if;
  if new.state is distinct from old.state then
    if new.state = 'cancelled' then
      answer := smena.cancel(old.id, 'corrected through smena.jobs');
    elsif new.state = 'ready' and old.state in ('failed', 'cancelled') then
      answer := smena.requeue(old.id, 'corrected through smena.jobs');
    elsif new.state = 'ready' and old.state = 'scheduled' then
      new.run_at := clock_timestamp();
    else
      answer := format('refused: job %s is %s and cannot become %s', old.id, old.state, new.state);
    end if;
    if answer like 'refused%' then
      raise exception 'smena.jobs: %', answer using errcode = 'object_not_in_prerequisite_state';
    end if;
    if new.state = 'cancelled' then
      return new;
    end if;
  end if;
  j := smena.lock_job(old.id);
  if j.state not in ('s', 'b', 'r', 'f', 'c') then
    raise exception 'smena.jobs: job % is %, and only work that is not running can be corrected',
      old.id, smena.state_word(j.state) using errcode = 'object_not_in_prerequisite_state';
  end if;
  if new.queue <> old.queue and (j.order_key is not null or j.unique_key is not null) then
    raise exception 'smena.jobs: job % has an order key or a unique key, which belong to its queue', old.id
      using errcode = 'object_not_in_prerequisite_state';
  end if;
  to_lane := smena.lane(new.queue, new.priority, (select l.kind from smena.lanes l where l.id = j.lane));
  to_state := case
    when j.state not in ('s', 'r') then j.state
    when new.run_at > clock_timestamp() then 's' else 'r' end;
  update smena.job set
      args = new.args, lane = to_lane, queue = (select l.queue from smena.lanes l where l.id = to_lane),
      state = to_state, run_at = new.run_at,
      pos = case when to_state <> 'r' then -id
                 when j.state = 'r' and to_lane = j.lane then pos else nextval('smena.pos_seq') end
    where lane = j.lane and pos = j.pos;
  perform smena.write_audit('correct', j, null, jsonb_build_object(
    'args', new.args, 'run_at', new.run_at, 'priority', new.priority, 'queue', new.queue, 'state', new.state));
  return new;
end $$;

create function smena.remove_job() returns trigger
language plpgsql as $$
declare
  answer text := smena.delete_job(old.id, 'deleted through smena.jobs');
begin
  if answer like 'refused%' then
    raise exception 'smena.jobs: %', answer using errcode = 'object_not_in_prerequisite_state';
  end if;
  return old;
end $$;

create trigger correct_job instead of update on smena.jobs for each row execute function smena.correct_job();
create trigger remove_job instead of delete on smena.jobs for each row execute function smena.remove_job();

-- An idle worker waits here, on its control connection: returns the last position drawn, as soon as it differs from
-- `seen`, or after `at_most` seconds. A poll of one page each few milliseconds, on the server, without a snapshot
-- that lives longer than `at_most`.
create function smena.wait_change(seen bigint, every float8 default 0.005, at_most float8 default 1) returns bigint
language plpgsql volatile as $$
declare
  head bigint;
  until timestamptz := clock_timestamp() + make_interval(secs => at_most);
begin
  loop
    select last_value into head from smena.pos_seq;
    exit when head <> seen or clock_timestamp() >= until;
    perform pg_sleep(every);
  end loop;
  return head;
end $$;
