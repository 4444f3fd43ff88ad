"""Train a classifier of handwritten digits and predict the test images."""

from pathlib import Path

import joblib
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

INPUT, FINAL = Path("./input"), Path("./final")
SEED = 0


def new_model():
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=200))


def main():
    train = pd.read_csv(INPUT / "train.csv")
    test = pd.read_csv(INPUT / "test.csv")
    pixels = [c for c in train.columns if c.startswith("pixel_")]
    x, y = train[pixels].to_numpy(float), train["label"].to_numpy()
    print(f"{len(train)} images to train on, {len(test)} to predict, {len(pixels)} pixels each")

    scores = []
    folds = StratifiedKFold(n_splits=5, shuffle=True, random_state=SEED)
    for i, (fit, check) in enumerate(folds.split(x, y), start=1):
        model = new_model().fit(x[fit], y[fit])
        scores.append(accuracy_score(y[check], model.predict(x[check])))
        print(f"fold {i}/{folds.get_n_splits()}: accuracy {scores[-1]:.4f}")

    model = new_model().fit(x, y)
    submission = pd.DataFrame({"id": test["id"], "label": model.predict(test[pixels].to_numpy(float))})
    submission.to_csv(FINAL / "submission.csv", index=False)
    joblib.dump(model, FINAL / "model.joblib")
    print(f"wrote {len(submission)} predictions and the model")
    print(f"Final Validation Performance: {sum(scores) / len(scores):.4f}")


if __name__ == "__main__":
    main()
