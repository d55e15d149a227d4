"""What a user's own training loop is watched with."""
