"""Ends with an exception: the column has another name."""

import pandas as pd

train = pd.read_csv("input/train.csv")
print(f"{len(train)} rows")
print(train["malignant"].mean())
