"""Programs that run networks forward."""
