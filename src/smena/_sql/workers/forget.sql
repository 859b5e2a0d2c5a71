-- The end of an incarnation: nothing of it is left.
delete from smena.workers w
where w.incarnation = :dead::bigint
  and not exists (select from smena.claims c where c.incarnation = w.incarnation)
returning true
