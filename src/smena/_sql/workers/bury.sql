-- Marks an incarnation as dead for ever, before the first of its jobs is taken: no renewal brings it back, whatever
-- becomes of its reaper.
update smena.workers set claimed_until = 'epoch' where incarnation = :dead::bigint and claimed_until > 'epoch'
