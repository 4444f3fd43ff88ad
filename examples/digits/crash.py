"""Fail as a wrong script does: with a traceback, after some progress."""

from pathlib import Path

import pandas as pd


def load(path):
    table = pd.read_csv(path)
    print(f"{len(table)} rows, {len(table.columns)} columns")
    # The column is called "label".
    return table.drop(columns=["id"]), table["target"]


def main():
    print("reading the training images")
    x, y = load(Path("./input") / "train.csv")
    print(f"classes: {sorted(y.unique())}")


if __name__ == "__main__":
    main()
