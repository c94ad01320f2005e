"""Results go to a folder of their own."""

import pytest


@pytest.fixture(autouse=True)
def folders(folders):
    return folders
