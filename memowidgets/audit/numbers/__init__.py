"""Numbers as functions of a `Source`: scores, ground truth, and how well one predicts the other."""
