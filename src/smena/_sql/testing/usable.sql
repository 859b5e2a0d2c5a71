-- Refused in a transaction that a failed statement has spoiled.
select 1
