"""Write the CSV files of input/ from the data set that ships with scikit-learn.

Run it where scikit-learn is installed; it needs no network:

    python3 export.py OUTPUT_FOLDER

The same scikit-learn data gives the same bytes. One image in five, chosen by a
fixed seed, goes to test.csv without its label; answers.csv holds those labels.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits


def write(path, header, rows):
    with path.open("w", newline="\n") as f:
        f.write(",".join(header) + "\n")
        for row in rows:
            f.write(",".join(str(int(v)) for v in row) + "\n")


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    ids = np.arange(len(digits.target))
    order = np.random.RandomState(0).permutation(ids)
    test = np.sort(order[: len(ids) // 5])
    train = np.sort(order[len(ids) // 5 :])

    pixels = [f"pixel_{i}" for i in range(digits.data.shape[1])]
    write(
        out / "train.csv",
        ["id", *pixels, "label"],
        np.column_stack([train, digits.data[train], digits.target[train]]),
    )
    write(out / "test.csv", ["id", *pixels], np.column_stack([test, digits.data[test]]))
    write(out / "sample_submission.csv", ["id", "label"], [(i, 0) for i in test])
    write(out.parent / "answers.csv", ["id", "label"], np.column_stack([test, digits.target[test]]))


if __name__ == "__main__":
    main()
