-- One job as people see it.
select to_jsonb(v)::text from smena.jobs v where v.id = :id::bigint
