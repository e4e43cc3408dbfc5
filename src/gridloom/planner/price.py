"""What a training takes beside its steps: days, device-hours, money, energy and carbon dioxide.

Everything is a number or an array with one entry a case.
"""

from dataclasses import dataclass

from gridloom.planner.cases import Column

HOUR_S = 3600.0
DAY_S = 86_400.0

NODE_SHARE = 1.5
"""Power of a node over that of its devices: processors, memory, network and fans.

Latif et al. (2024): at most 8.4 kW, measured, of a node with eight H100 of 700 W in training.
"""

PUE = 1.1
"""Power usage effectiveness of a large data centre: Google and Meta report 1.08 to 1.10 (2024)."""


@dataclass(frozen=True, kw_only=True)
class Tariff:
    """What a device costs at its site.

    Attributes:
        per_device_hour: In the grid's currency; 0 when unknown.
        power_w: Of one busy device with its share of the node.
        pue: All power of the data centre over that of its machines.
        carbon_g_per_kwh: Of the site's electricity; 0 when unknown.
    """

    per_device_hour: Column = 0.0
    power_w: Column
    pue: Column = PUE
    carbon_g_per_kwh: Column = 0.0


@dataclass(frozen=True, kw_only=True)
class Bill:
    """What a training takes.

    Attributes:
        time_s: From begin to end.
        device_hours: Devices times hours.
        price: In the grid's currency.
        energy_kwh: At the data centre's meter.
        carbon_kg: Carbon dioxide of that energy.
    """

    time_s: Column
    device_hours: Column
    price: Column
    energy_kwh: Column
    carbon_kg: Column

    @property
    def days(self) -> Column:
        """The same time in days."""
        return self.time_s / DAY_S


def training_s(
    step_s: Column, tokens: Column, tokens_a_step: Column, useful: Column = 1.0
) -> Column:
    """Return the seconds of a training to ``tokens``.

    Args:
        step_s: Of one training step.
        tokens: In all.
        tokens_a_step: Sequences of the global batch times tokens a sequence.
        useful: Share of the time that training steps take which count (goodput).
    """
    return step_s * (tokens / tokens_a_step) / useful


def device_power_w(design_w: Column, stated_w: Column = 0.0) -> Column:
    """Return the power of one busy device with its share of the node.

    Args:
        design_w: Thermal design power of the device.
        stated_w: What its site states; 0 when it states nothing.
    """
    return stated_w + (stated_w == 0) * NODE_SHARE * design_w


def bill(time_s: Column, devices: Column, tariff: Tariff) -> Bill:
    """Return what a training of ``time_s`` on ``devices`` takes, all of them busy throughout."""
    hours = devices * (time_s / HOUR_S)
    kwh = hours * tariff.power_w * tariff.pue / 1000.0
    return Bill(
        time_s=time_s,
        device_hours=hours,
        price=hours * tariff.per_device_hour,
        energy_kwh=kwh,
        carbon_kg=kwh * tariff.carbon_g_per_kwh / 1000.0,
    )
