-- Finishes the last results and claims the next jobs, in one statement and one commit.
--
-- Finishing: one byte per position of the range lo..hi, 1 where the job is done. Claimed positions lie close
-- together, so one range scan replaces as many index descents. CASE keeps get_byte inside its bytes.
-- Claiming: by array probe. As a join this would become a hash join over the backlog under a generic plan.
-- The advisory lock and the lease are looked at in this order, and only when something is to be claimed: a reaper
-- takes the same lock exclusively, so that it never overlooks a claim that is on its way.
with done as (
  update smena.job j set state = 'd', finished_at = clock_timestamp(), result = :results::jsonb -> (j.pos - :lo::bigint)::text
  where j.lane = :done_lane::int and j.pos between :lo::bigint and :hi::bigint
    and j.worker = :incarnation::bigint and j.state in ('l', 'm')
    and case when j.pos between :lo::bigint and :hi::bigint
      then get_byte(:map::bytea, (j.pos - :lo::bigint)::int) end = 1
  returning 1
), claimed as (
  update smena.job j set state = 'l', attempt = j.attempt + 1, worker = :incarnation::bigint,
    started_at = clock_timestamp()
  where j.lane = :lane::int and j.pos > :floor::bigint and j.pos = any (array(
    select c.pos from smena.job c
    where c.lane = :lane::int and c.pos > :floor::bigint and c.state = 'r'
    order by c.pos
    limit case when :n::int > 0 then
      case when pg_try_advisory_xact_lock_shared(:lock_a::int, :lock_b::int) then
        case when smena.may_claim(:incarnation::bigint) then :n::int else 0 end
      else 0 end
    else 0 end
    for update skip locked))
  returning j.pos, j.id, j.attempt, j.max_attempts, j.task,
    case when pg_column_size(j.args) <= 8192 then j.args::text end as args,
    (date_part('epoch', j.created_at) * 1000000)::bigint as created_us,
    case when j.order_key is not null or j.headers is not null or j.idempotency_key is not null
        or j.generation is not null or j.expires_at is not null or j.attempts_before is not null
        or j.unknown_since is not null or not j.repeats or j.schedule is not null
      then json_build_object('order_key', j.order_key, 'queue', j.queue, 'headers', j.headers,
        'idempotency_key', j.idempotency_key, 'generation', j.generation, 'repeats', j.repeats,
        'expired', j.expires_at < clock_timestamp(), 'attempts_before', j.attempts_before, 'schedule', j.schedule,
        'after_failed', j.after_failed,
        'unknown_for', date_part('epoch', clock_timestamp() - j.unknown_since))::text end as rest
), ledger as (
  insert into smena.claims (incarnation, lane, lo, hi)
  select :incarnation::bigint, :lane::int, min(pos), max(pos) from claimed having count(*) > 0
)
select d.n, c.* from (select count(*) as n from done) d left join claimed c on true
