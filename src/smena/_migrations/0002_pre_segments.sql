-- Segments: the partitions that hold positions. They are supplied ahead of the sequence, with the owner's rights,
-- so that an enqueue never fails for want of one, and dropped whole when nothing in them is needed any more.

-- Makes segments until `ahead` of them lie wholly before the sequence. Returns how many it made.
-- A table is built alone and then attached: attaching does not wait for readers, CREATE ... PARTITION OF would.
create function smena.supply_segments(ahead int default 8) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  head bigint;
  top bigint;
  size bigint;
  per_day float8;
  kept float8;
  name text;
  made int := 0;
begin
  if not pg_try_advisory_xact_lock(hashtext('smena.segments'), 1) then
    return 0;    -- another process is at it
  end if;
  loop
    select last_value into head from smena.pos_seq;
    exit when (select count(*) from smena.segments where lo > head) >= ahead;
    select coalesce(max(hi), 1) into top from smena.segments;
    -- The size follows the rate, so that three days of history stay within about sixteen segments.
    select count(*), (max(hi) - min(lo)) / greatest(extract(epoch from clock_timestamp() - min(opened_at)) / 86400, 0.01)
      into kept, per_day
      from smena.segments where closed_at is not null and opened_at is not null;
    size := least(greatest(2000000, case when kept >= 4 then (per_day * 3 / 16)::bigint else 0 end), 200000000);
    name := 'job_s' || top;
    execute format(
      'create table smena.%I (like smena.job including defaults including constraints) with (fillfactor = 40)', name);
    execute format('alter table smena.job attach partition smena.%I for values from (%s) to (%s)', name, top, top + size);
    insert into smena.segments (name, lo, hi) values (name, top, top + size);
    made := made + 1;
  end loop;
  update smena.segments set opened_at = clock_timestamp() where opened_at is null and lo <= head;
  update smena.segments set closed_at = clock_timestamp() where closed_at is null and hi <= head;
  return made;
end $$;

-- Leaves a day-old segment: moves the sequence to the next one. The lock keeps every drawer of positions out,
-- because setval may never go backwards; the caller sets lock_timeout.
create function smena.leave_segment(older_than interval default '1 day') returns bool
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  open smena.segments;
  head bigint;
begin
  select last_value into head from smena.pos_seq;
  select * into open from smena.segments
    where lo <= head and head < hi - 1 and opened_at < clock_timestamp() - older_than;
  if not found or not exists (select from smena.job where pos >= open.lo and pos < open.hi) then
    return false;
  end if;
  lock table smena.job in share row exclusive mode;
  select last_value into head from smena.pos_seq;
  if head < open.hi - 1 then
    perform setval('smena.pos_seq', open.hi - 1);
  end if;
  update smena.segments set closed_at = clock_timestamp() where id = open.id;
  return true;
end $$;

-- Drops one closed segment below `settled` in which nothing is ready or running and every row is past `keep`.
-- Returns its name, or null. The caller sets lock_timeout; a reader of the segment delays the drop, nothing else.
create function smena.drop_segment(settled bigint, keep interval) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  old smena.segments;
  used bool;
begin
  for old in select * from smena.segments where closed_at < clock_timestamp() - keep and hi <= settled order by lo loop
    execute format(
      'select exists (select from smena.%I where state in (''r'', ''l'', ''m'') or finished_at > clock_timestamp() - $1)',
      old.name) into used using keep;
    continue when used;
    execute format('alter table smena.job detach partition smena.%I', old.name);
    execute format('drop table smena.%I', old.name);
    delete from smena.segments where id = old.id;
    return old.name;
  end loop;
  return null;
end $$;

-- They act with the owner's rights, and one of them drops history: only workers may call them (`smena db grant --work`).
revoke execute on function smena.supply_segments(int), smena.leave_segment(interval),
  smena.drop_segment(bigint, interval) from public;

select smena.supply_segments(8);

-- May anybody take the jobs of expired incarnations now? Only while some worker has renewed without a gap for one lease
-- term and the server has been up that long: then the database was there for all to renew, and an expired lease means
-- a dead worker. After an outage that is nobody, for one lease term, and the living get their leases back.
-- A gap is half a lease. Workers renew at a third, so an outage shorter than half a lease costs nobody the lease, and one
-- that is longer leaves a gap in everybody's renewals.
create function smena.is_witness(w smena.workers) returns bool
language sql stable as $$
  select w.renewed_at > clock_timestamp() - make_interval(secs => w.lease / 2)
    and w.claimed_until > clock_timestamp()
    and w.unbroken_since <= clock_timestamp() - make_interval(secs => w.lease)
    and pg_postmaster_start_time() <= clock_timestamp() - make_interval(secs => w.lease)
$$;

-- May this incarnation claim? Volatile, so that it looks with a snapshot of its own: the claim's may be older than the
-- advisory lock under which it asks, and not know that the incarnation was closed or reaped.
create function smena.may_claim(of_incarnation bigint) returns bool
language plpgsql volatile as $$
begin
  return exists (
    select from smena.workers w
    where w.incarnation = of_incarnation and w.claimed_until > clock_timestamp() and not w.closed);
end $$;
