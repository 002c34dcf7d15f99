"""What people use today for the same runs, each in an environment of its own, measured by the same clock."""
