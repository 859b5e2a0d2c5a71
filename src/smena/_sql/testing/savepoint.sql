-- A handler's failed statement must not spoil the transaction that a test drains in.
savepoint smena_job
