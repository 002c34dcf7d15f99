"""A plane in virtual time: made up load and engines, and the autoscaler's own policy, placement and pre-warm."""
