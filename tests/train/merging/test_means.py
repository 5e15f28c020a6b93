"""Means against the dense ones."""

import numpy as np
import pytest
import torch

from tests.train.merging.drawn import adapter, dense
from train.merging.means import exact_mean, factor_mean, factor_of_norm, recompress, scaled_mean, total_norm

pytestmark = pytest.mark.numeric

ADAPTERS = [adapter(0), adapter(1, rank=1), adapter(2, rank=4)]


def test_concatenation_is_the_dense_mean() -> None:
    for module, merged in exact_mean(ADAPTERS).items():
        mean = np.mean([dense(one[module]) for one in ADAPTERS], axis=0)
        assert merged[0].shape[1] == 7
        np.testing.assert_allclose(dense(merged), mean, rtol=0, atol=1e-12)


def test_mean_of_factors_is_not_the_mean_of_products() -> None:
    first, second = adapter(0), adapter(1)
    for module, (b, a) in factor_mean([first, second]).items():
        torch.testing.assert_close(b, (first[module][0] + second[module][0]) / 2, rtol=0, atol=1e-15)
        torch.testing.assert_close(a, (first[module][1] + second[module][1]) / 2, rtol=0, atol=1e-15)
        assert not np.allclose(dense((b, a)), dense(exact_mean([first, second])[module]))
    with pytest.raises(ValueError, match="rank 1, adapter 1 2"):
        factor_mean(ADAPTERS)


def test_scaled_mean_has_the_wished_norm() -> None:
    factor = factor_of_norm(ADAPTERS, 1.5)
    scaled = scaled_mean(ADAPTERS, factor)
    norm = np.sqrt(sum(np.linalg.norm(dense(factors)) ** 2 for factors in scaled.values()))
    assert norm == pytest.approx(1.5, rel=1e-12)
    assert total_norm(scaled) == pytest.approx(1.5, rel=1e-12)
    zero = {module: (torch.zeros_like(b), a) for module, (b, a) in adapter(0).items()}
    assert factor_of_norm([zero], 1.5) == 0.0


def test_recompression_error_is_the_dense_one() -> None:
    whole = exact_mean(ADAPTERS)
    cut = recompress(whole, 2)
    for module, factors in cut.items():
        exact = dense(whole[module])
        error = np.linalg.norm(dense(factors) - exact) / np.linalg.norm(exact)
        assert cut.errors[module] == pytest.approx(error, rel=1e-9)
        assert factors[0].shape[1] == 2
    assert max(recompress(whole, 7).errors.values()) < 1e-12
