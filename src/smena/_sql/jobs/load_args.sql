-- Arguments too large to come with the claim, which is capped in bytes by leaving them out.
select args::text from smena.job
where lane = :lane::int and pos = :pos::bigint and worker = :incarnation::bigint and state in ('l', 'm')
