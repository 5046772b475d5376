import pytest

import baton
import goldens

# The reference kernels are plain loops: short prompts only. goldens.py runs them all.
LIMIT = {"default": None, "portable": 30, "reference": 15}


@pytest.mark.parametrize("kernels", ["default", "portable", "reference"])
@pytest.mark.parametrize("model", ["smollm2", "gemma3"])
def test_goldens(model, kernels):
    if baton.goldens(model) is None:
        pytest.skip("skipped: no goldens of the real models beside the repository (BATON_SHARED)")
    scores, differ = goldens.run(model, kernels, LIMIT[kernels])
    assert not differ
    for kind, score in scores.items():
        assert score.within(goldens.BOUNDS[kernels, kind]), (kind, score)
