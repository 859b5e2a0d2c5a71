-- The job store: a positional log. docs/design/store.md says why each table has this shape.

create schema if not exists smena;

-- One row: who this installation is, and in which database it was last told to live.
create table smena.installation (
  one bool primary key default true check (one),
  id uuid not null default gen_random_uuid(),
  system_identifier bigint not null,
  database_oid bigint not null,
  created_at timestamptz not null default clock_timestamp()
);
insert into smena.installation (system_identifier, database_oid)
select c.system_identifier, d.oid::bigint
from pg_control_system() c, pg_database d where d.datname = current_database();

create table smena.queues (
  id int generated always as identity primary key,
  name text not null unique check (name <> '' and length(name) <= 100),
  paused_at timestamptz,
  paused_by text,
  pause_reason text,
  created_at timestamptz not null default clock_timestamp()
);

-- A lane is one line of waiting jobs. kind: n new work, r returned work, s suspects (each runs alone).
create table smena.lanes (
  id int generated always as identity primary key,
  queue int not null references smena.queues,
  priority smallint not null check (priority between -100 and 100),
  kind "char" not null check (kind in ('n', 'r', 's')),
  unique (queue, priority, kind)
);

-- CACHE 1 is part of the floor's argument: a cached value could be used by a later transaction.
create sequence smena.pos_seq as bigint cache 1;

create table smena.job (
  lane int not null,
  queue int not null,
  pos bigint not null,            -- the place in the log; negative: parked
  id bigint not null,             -- stable for ever; the first position drawn for the job
  created_at timestamptz not null default clock_timestamp(),
  -- s scheduled, b blocked, r ready, l running, m running past its start mark,
  -- d done, f failed, u unknown, c cancelled
  state "char" not null,
  repeats bool not null default true,
  attempt smallint not null default 0,
  max_attempts smallint not null,
  worker bigint,                  -- the incarnation that claimed this position: with pos the fence
  started_at timestamptz,
  finished_at timestamptz,
  run_at timestamptz,
  expires_at timestamptz,
  planned_at timestamptz,
  task text not null,
  args jsonb not null,
  order_key text,
  unique_key text,
  idempotency_key text,
  headers jsonb,
  schedule text,
  failure_kind text,
  failure_side text,
  after_failed "char",            -- with an order key: n the next one runs, b the key stays blocked
  attempts_before int,            -- attempts of earlier cycles, before the last requeue
  crashes smallint,
  snoozes int,
  requeues smallint,
  generation smallint,            -- of the idempotency key; raised by requeue --new-key
  unknown_since timestamptz,      -- first handed back because no worker knew the task or its arguments
  result jsonb,
  primary key (lane, pos)
) partition by range (pos);

create index job_id on smena.job (id);

create table smena.job_parked partition of smena.job for values from (minvalue) to (0) with (fillfactor = 90);
create index job_parked_due on smena.job_parked (run_at) where state = 's';
create index job_parked_blocked on smena.job_parked (queue, order_key, id) where state = 'b';
create index job_parked_state on smena.job_parked (queue, state, id);

create table smena.segments (
  id int generated always as identity primary key,
  name text not null unique,
  lo bigint not null,             -- first position
  hi bigint not null,             -- first position of the next one
  created_at timestamptz not null default clock_timestamp(),
  opened_at timestamptz,
  closed_at timestamptz,
  emptied_at timestamptz
);

-- Who works: one row per life of a worker process. The lease is here, not on the jobs.
create table smena.workers (
  incarnation bigint primary key,
  name text not null,
  host text not null,
  pid int not null,
  release text,
  queues text[] not null,
  concurrency int not null,
  lease float8 not null,
  started_at timestamptz not null default clock_timestamp(),
  renewed_at timestamptz not null default clock_timestamp(),
  unbroken_since timestamptz not null default clock_timestamp(),  -- renewed in time ever since
  claimed_until timestamptz not null,
  closed bool not null default false,
  stopping bool not null default false
) with (fillfactor = 50);

-- The claim ledger: how the jobs of a dead incarnation are found without an index on state.
create table smena.claims (
  incarnation bigint not null,
  lane int not null,
  lo bigint not null,
  hi bigint not null,
  primary key (incarnation, lane, hi)
);

-- Where a claim may start. Lane 0 is the whole log: what lies at or below its floor is settled.
create table smena.floors (
  lane int primary key,
  floor bigint not null,
  straggler bigint,               -- a ready position that was passed over; workers go back to it
  updated_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

create table smena.duties (
  name text primary key,
  holder bigint,
  held_until timestamptz not null default '-infinity',
  ticked_at timestamptz
) with (fillfactor = 50);
insert into smena.duties (name) values ('maintenance');

-- Every attempt that did not end in done. Append-only.
create table smena.attempts (
  job_id bigint not null,
  attempt int not null,
  pos bigint,
  outcome text not null,
  kind text,
  side text,
  detail jsonb,
  worker text,
  started_at timestamptz,
  finished_at timestamptz not null default clock_timestamp()
);
create index attempts_job on smena.attempts (job_id);
create index attempts_age on smena.attempts using brin (finished_at);

-- Unique keys live apart from the log. A hold is good while its job is: a stale hold is taken over, never an error.
create table smena.unique_keys (
  queue int not null,
  unique_key text not null,
  job_id bigint not null,
  mode text not null check (mode in ('active', 'waiting', 'forever', 'seconds')),
  expires_at timestamptz,
  version bigint not null default (random() * 1e15)::bigint,  -- of this hold: a later one of the same key has another
  primary key (queue, unique_key)
) with (fillfactor = 70);

-- The one job of each order key that may be ready, running, scheduled or unknown.
create table smena.order_heads (
  queue int not null,
  order_key text not null,
  job_id bigint not null,
  primary key (queue, order_key)
) with (fillfactor = 70);

create table smena.cancel_requests (
  job_id bigint primary key,
  pos bigint not null,
  worker bigint not null,
  reason text,
  requested_by text not null default session_user,
  requested_at timestamptz not null default clock_timestamp()
);
create index cancel_requests_worker on smena.cancel_requests (worker);

create table smena.audit (
  id bigint generated always as identity primary key,
  at timestamptz not null default clock_timestamp(),
  actor text not null default session_user,
  action text not null,
  job_id bigint,
  queue text,
  reason text,
  before jsonb,
  after jsonb
);

-- Counts for people, pages and metrics, kept by a duty; smena.queue_stats is the view on them.
create table smena.queue_counts (
  queue int not null,
  state text not null,
  count bigint not null,
  capped bool not null,
  oldest_age float8,
  measured_at timestamptz not null,
  primary key (queue, state)
) with (fillfactor = 50);
