"""A classifier of scikit-learn, refitted on rows."""

from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier

import memowidgets as mw

X, y = load_breast_cancer(return_X_y=True)

if __name__ == "__main__":
    audit = mw.Audit.from_estimator(RandomForestClassifier(), X, y, path="runs/forest")
    audit.train()
    audit.run_references(2)
    audit.run_shadows(32)
    print(audit.flagged("reference", share=0.05))
    print(audit.evaluate("reference"))
    audit.report("forest.html")
