"""What each command does to the memories of a core."""
