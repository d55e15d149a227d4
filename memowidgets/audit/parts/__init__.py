"""What an audit is made of, each part on the one before: run, training, truth, scores, verdict."""
