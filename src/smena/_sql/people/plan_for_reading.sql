-- For the rest of the transaction: plans for one short look, by index. The planner prices whole partitions where one
-- page is read; compiling such a plan takes a second, and a scan or a bitmap reads to the end what a LIMIT would leave.
select set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true),
  set_config('enable_bitmapscan', 'off', true), set_config('plan_cache_mode', 'force_custom_plan', true)
