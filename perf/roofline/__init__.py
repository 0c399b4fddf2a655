"""What limits a network on a machine, and from where on a variant with predictions pays."""
