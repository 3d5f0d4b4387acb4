"""Whose price is paid stands beside the figure."""

import pytest

from paceline.parts.plan.planner.question import Payment, Prices

BOTH = Prices(on_demand=3.0, sagemaker=3.7, spot=1.1, spot_zone="eu-west-1a")
EC2 = Prices(on_demand=3.0)
GIVEN = Prices(on_demand=2.0, source="--usd-per-hour")


@pytest.mark.parametrize(
    ("prices", "payment", "paid", "words"),
    [
        (BOTH, Payment.ON_DEMAND, 3.0, "EC2's on demand"),
        (BOTH, Payment.SAGEMAKER, 3.7, "SageMaker's, from an old list"),
        (BOTH, Payment.SPOT, 1.1, "EC2's on spot in eu-west-1a"),
        (EC2, Payment.SAGEMAKER, None, ""),
        (EC2, Payment.SPOT, None, ""),
        (Prices(), Payment.SAGEMAKER, None, ""),
        (GIVEN, Payment.ON_DEMAND, 2.0, "those given"),
        (GIVEN, Payment.SAGEMAKER, 2.0, "those given"),
    ],
)
def test_the_price_and_whose_it_is(prices, payment, paid, words):
    assert prices.paid(payment) == paid and prices.whose(payment).startswith(words)
    assert bool(prices.whose(payment)) == (paid is not None)
