"""How a command runs: requests, results, failures and signals."""
