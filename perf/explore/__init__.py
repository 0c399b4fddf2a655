"""Which sizes of the machine are worth their area: a search for the Pareto front."""
