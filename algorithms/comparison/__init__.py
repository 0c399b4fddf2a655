"""Methods of training compared for equal time: budgets in MACs, tuned rates, fresh seeds."""
