"""One page of load tests: a file of HTML that needs nothing else, for people who want to see."""
