-- Seconds until the next scheduled job is due; null when there is none.
select date_part('epoch', min(run_at) - clock_timestamp())::float8 from smena.job_parked where state = 's'
