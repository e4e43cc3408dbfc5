"""Days, device-hours, money, energy and carbon of a training, by hand."""

import numpy as np
import pytest

from gridloom.planner.price import Tariff, bill, device_power_w, training_s


def test_a_training_by_hand() -> None:
    # A step of 10 s over 4M tokens: 2.5e5 steps to 1T tokens, 28.94 days; 1/0.9 more with failures.
    time_s = training_s(10.0, 1e12, 4e6, 0.9)
    assert time_s == pytest.approx(2.5e6 / 0.9)
    tariff = Tariff(per_device_hour=2.0, power_w=1000.0, pue=1.2, carbon_g_per_kwh=400.0)
    found = bill(time_s, 64, tariff)
    assert found.days == pytest.approx(32.150, abs=0.001)
    assert found.device_hours == pytest.approx(64 * 2.5e6 / 0.9 / 3600)
    assert found.price == pytest.approx(98_765.43, abs=0.01)
    assert found.energy_kwh == pytest.approx(59_259.26, abs=0.01)
    assert found.carbon_kg == pytest.approx(23_703.70, abs=0.01)


def test_power_is_the_sites_or_the_devices_with_its_share_of_the_node() -> None:
    # 8 x 700 W and their node: 8.4 kW (Latif et al., 2024).
    assert 8 * device_power_w(700.0) == pytest.approx(8400.0)
    assert device_power_w(700.0, 1275.0) == 1275.0
    assert device_power_w(np.array([700.0, 400.0]), np.array([0.0, 500.0])).tolist() == [1050, 500]


def test_columns() -> None:
    found = bill(np.array([3600.0, 7200.0]), np.array([8, 4]), Tariff(power_w=700.0))
    assert found.device_hours.tolist() == [8.0, 8.0]
    assert found.price.tolist() == [0.0, 0.0]
    assert found.energy_kwh == pytest.approx(8 * 0.7 * 1.1)
