"""A library that is installed, and does not work on this machine."""

raise ImportError("libfoo.so: cannot open shared object file")
