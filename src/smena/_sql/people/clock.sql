-- The present, by the clock that decides.
select clock_timestamp()::text
