-- Back to the state before the handler, whose failed statement spoiled the transaction.
rollback to savepoint smena_job
