//! Leases: the tokens of budgets that one instance holds.
