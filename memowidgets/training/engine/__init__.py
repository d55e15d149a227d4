"""Where shadow models are trained: local processes or anyone's executor, each seed once."""
