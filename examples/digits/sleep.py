"""Report a first score, leave a first file, then hang far beyond any time limit."""

import time
from pathlib import Path


def main():
    print("epoch 1/100")
    (Path("./final") / "checkpoint.txt").write_text("epoch 1\n")
    print("Final Validation Performance: 0.5000", flush=True)
    print("epoch 2/100: waiting for data that never comes", flush=True)
    time.sleep(24 * 60 * 60)


if __name__ == "__main__":
    main()
