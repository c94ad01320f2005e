"""Results go to a folder of their own."""

import pytest


@pytest.fixture(autouse=True)
def in_its_own(folders):
    pass
