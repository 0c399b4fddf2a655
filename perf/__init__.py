"""Models of time: what the paper's evaluation is made of, from counted work."""
