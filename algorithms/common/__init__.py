"""What networks and experiments share."""
