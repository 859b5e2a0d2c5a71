-- Jobs as people see them, in the order of the ids given; those that are gone are left out.
select v.job
from jsonb_array_elements_text(:ids::text::jsonb) with ordinality as w(id, n)
cross join lateral (
  select to_jsonb(v)::text as job from smena.jobs v where v.id = w.id::bigint offset 0) v
order by w.n
