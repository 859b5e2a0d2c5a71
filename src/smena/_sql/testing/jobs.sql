-- Jobs as people see them, and their arguments with every digit; of some tasks or ids, or all of them.
select to_jsonb(v)::text, v.args::text
from smena.jobs v
where (:tasks::text is null or v.task in (select value from jsonb_array_elements_text(:tasks::text::jsonb)))
  and (:ids::text is null or v.id in (select value::bigint from jsonb_array_elements_text(:ids::text::jsonb)))
order by v.id
