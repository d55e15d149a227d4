"""Training of shadow models in local processes or any executor, each seed only once."""
