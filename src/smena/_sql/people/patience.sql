-- For the rest of the transaction: nobody waits longer than this for a row that another transaction holds.
select set_config('lock_timeout', (:seconds::float8 * 1000)::int::text, true)
