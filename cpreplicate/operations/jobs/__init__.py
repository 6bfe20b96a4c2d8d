"""Many jobs: which there are, when each is synced, and the services that follow them."""
