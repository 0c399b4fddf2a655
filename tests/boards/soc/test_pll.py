"""Settings of the PLL: the frequency that is asked for, within the limits of the part."""

import pytest

from boards.soc.pll import pll_settings


@pytest.mark.parametrize("mhz", [25, 37.5, 40, 45, 50, 60, 62.5])
@pytest.mark.parametrize("ratio", [1, 2])
def test_settings(mhz, ratio):
    s = pll_settings(25.0, mhz, ratio)
    assert s.slow_mhz == pytest.approx(mhz, rel=1e-3)
    assert s.fast_mhz == pytest.approx(ratio * s.slow_mhz)
    assert 400 <= s.oscillator_mhz <= 800
    assert s.input_mhz / s.input >= 3.125
    assert 1 <= s.output * ratio <= 128 and 1 <= s.feedback <= 128


def test_none():
    with pytest.raises(ValueError, match="gives 43.21 MHz; the next is 42.8571 MHz"):
        pll_settings(25.0, 43.21, 2)
    with pytest.raises(ValueError, match="no setting of the PLL gives 500 and 1000 MHz"):
        pll_settings(25.0, 500, 2)
