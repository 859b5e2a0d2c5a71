"""`smena demo`: real purchases, a provider that misbehaves, and workers that are killed."""
