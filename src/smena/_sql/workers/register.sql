-- A new life of a worker process. Sent again when the answer was lost: the row is ours then.
insert into smena.workers (incarnation, name, host, pid, release, queues, concurrency, lease, claimed_until)
values (:incarnation::bigint, :name::text, :host::text, :pid::int, :release::text, :queues::text[],
  :concurrency::int, :lease::float8, clock_timestamp() + make_interval(secs => :lease::float8))
on conflict (incarnation) do nothing
