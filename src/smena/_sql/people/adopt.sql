-- Tells the store that it lives here now. With `apart` it becomes an installation of its own, with new idempotency
-- keys for all its jobs; without, it goes on as the one that it was.
with old as materialized (
  select i.id, i.system_identifier, i.database_oid from smena.installation i for update
), adopted as (
  update smena.installation i set
    id = case when :apart::bool then gen_random_uuid() else i.id end,
    system_identifier = c.system_identifier, database_oid = d.oid::bigint
  from old, pg_control_system() c, pg_database d where i.id = old.id and d.datname = current_database()
  returning i.id, i.system_identifier, i.database_oid
), noted as (
  insert into smena.audit (action, reason, before, after)
  select 'adopt', :reason::text, to_jsonb(old), to_jsonb(adopted) from old, adopted
)
select id::text from adopted
