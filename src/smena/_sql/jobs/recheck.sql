-- After a finish whose answer got lost, or that met fewer rows than it should: what became of these positions.
select j.pos, j.state, j.worker = :incarnation::bigint as ours
from smena.job j
where j.lane = :lane::int and j.pos = any (:positions::bigint[])
