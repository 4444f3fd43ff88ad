"""Compare a submission with the answers, and print the accuracy.

It finds both below ./input: what the script left in submission/, and the answers,
which no script ever sees, in answers/.
"""

import csv
from pathlib import Path


def read(path):
    with path.open(newline="", encoding="utf-8") as f:
        return {row["id"]: row["benign"] for row in csv.DictReader(f)}


def main():
    answers = read(Path("input/answers/answers.csv"))
    submission = read(Path("input/submission/submission.csv"))
    right = sum(submission.get(key) == value for key, value in answers.items())
    print(f"Final Validation Performance: {right / len(answers):.4f}")


if __name__ == "__main__":
    main()
