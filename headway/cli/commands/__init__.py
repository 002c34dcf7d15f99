"""One module a command or group of commands. Heavy imports stand inside the functions: help comes at once."""
