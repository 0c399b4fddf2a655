"""Area and clock frequency of generated hardware, from real synthesis and place-and-route."""
