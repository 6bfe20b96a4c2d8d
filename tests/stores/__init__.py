"""Real servers of each kind of object store: `make stores` installs them."""
