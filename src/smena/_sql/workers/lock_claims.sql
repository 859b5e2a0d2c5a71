-- Waits for no one: false while a claim of that incarnation is on its way. Held, no claim of it can start.
select pg_try_advisory_xact_lock(:lock_a::int, :lock_b::int)
