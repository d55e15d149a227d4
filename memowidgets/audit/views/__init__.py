"""What a page needs of a `Source`: the dashboard's answers, the figures, the report's content."""
