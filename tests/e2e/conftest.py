import pytest

import baton


@pytest.fixture(scope="session")
def smollm2():
    """One server of the default model for the tests that change nothing about it."""
    with baton.Server() as server:
        yield server


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request):
    """After a test on the shared server nothing runs, waits or holds blocks."""
    yield
    if "smollm2" in request.fixturenames:
        assert request.getfixturevalue("smollm2").wait_idle(20)
