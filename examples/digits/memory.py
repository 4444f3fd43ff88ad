"""Take more memory than any sensible limit allows, 16 MiB at a time."""

import os

STEP_MIB = 16


def main():
    held = []
    while True:
        # Random bytes: every page is really written, and none can be shared.
        held.append(os.urandom(STEP_MIB << 20))
        print(f"holding {len(held) * STEP_MIB} MiB", flush=True)


if __name__ == "__main__":
    main()
