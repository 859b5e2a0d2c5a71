-- The claims of an incarnation that were not forgotten yet.
select c.lane, c.lo, c.hi from smena.claims c where c.incarnation = :incarnation::bigint order by c.lane, c.hi
