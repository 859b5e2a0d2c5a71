-- Dead incarnations: their leases ran out on the database clock. Another reaper's row is skipped.
select w.incarnation, w.name from smena.workers w
where w.claimed_until < clock_timestamp()
order by w.claimed_until limit 10
for update skip locked
