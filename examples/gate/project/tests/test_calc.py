import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from calc import divide


@pytest.mark.parametrize("a, b, want", [(6, 3, 2), (1, 2, 0.5), (-4, 2, -2)])
def test_divide(a, b, want):
    assert divide(a, b) == want


def test_divide_by_zero():
    with pytest.raises(ZeroDivisionError):
        divide(1, 0)


@pytest.mark.skip(reason="needs a bigger number")
def test_overflow():
    divide(10**400, 1)
