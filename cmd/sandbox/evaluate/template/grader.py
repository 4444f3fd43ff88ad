"""Scores a submission in a container of its own, which alone sees the answers.

It reads untrusted files: it parses them as data, and prints nothing of their content.
"""
import csv


def column(path):
    with open(path, newline="") as f:
        return {row["id"]: float(row["y"]) for row in csv.DictReader(f)}


submitted = column("input/submission/submission.csv")
answers = column("input/answers/answers.csv")
error = sum(abs(submitted[key] - value) for key, value in answers.items()) / len(answers)
print(f"Final Validation Performance: {error:.4f}")
