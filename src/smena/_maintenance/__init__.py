"""Background duties. Any worker may run any of them at any time; the maintenance lease only avoids double effort."""
