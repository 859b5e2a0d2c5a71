"""The worker process: claims jobs, runs them in its slots, hands their outcomes in, and keeps its lease."""
