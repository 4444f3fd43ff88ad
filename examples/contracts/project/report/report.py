"""Sums up numbers.csv, which lies beside it."""
import csv

with open("numbers.csv") as file:
    values = [float(row["value"]) for row in csv.DictReader(file)]
print(f"{len(values)} values, mean {sum(values) / len(values):.2f}")
