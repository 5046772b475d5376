import pytest

import baton


@pytest.fixture(scope="session")
def smollm2():
    """One server of the default model for the tests that change nothing about it."""
    with baton.Server() as server:
        yield server


@pytest.fixture(scope="session")
def pair():
    """The same with a prefill and a decode engine: every prompt of more than a block is handed over."""
    with baton.Server("--engines", "1P1D", "--oversubscribe", "--remote-prefill-min-tokens", 1) as server:
        yield server


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request):
    """After a test on a shared server nothing runs, waits or holds blocks."""
    yield
    for name in ("smollm2", "pair"):
        if name in request.fixturenames:
            assert request.getfixturevalue(name).wait_idle(20)
