"""Write the CSV files of input/ and answers/ from the data set that ships with scikit-learn.

Run it where scikit-learn is installed; it needs no network:

    python3 export.py OUTPUT_FOLDER

The same scikit-learn data gives the same bytes. One tumour in four, chosen by a
fixed seed, goes to test.csv without its diagnosis; answers/ holds those.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer


def write(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="\n") as f:
        f.write(",".join(header) + "\n")
        for row in rows:
            f.write(",".join(format(v, ".6g") for v in row) + "\n")


def main():
    out = Path(sys.argv[1])
    data = load_breast_cancer()
    ids = np.arange(len(data.target))
    order = np.random.RandomState(0).permutation(ids)
    test = np.sort(order[: len(ids) // 4])
    train = np.sort(order[len(ids) // 4 :])

    names = [name.replace(" ", "_") for name in data.feature_names]
    write(
        out / "input" / "train.csv",
        ["id", *names, "benign"],
        np.column_stack([train, data.data[train], data.target[train]]),
    )
    write(out / "input" / "test.csv", ["id", *names], np.column_stack([test, data.data[test]]))
    write(out / "input" / "sample_submission.csv", ["id", "benign"], [(i, 0) for i in test])
    write(out / "answers" / "answers.csv", ["id", "benign"], np.column_stack([test, data.target[test]]))


if __name__ == "__main__":
    main()
