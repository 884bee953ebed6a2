import pytest
from bench.plan_slides import SENT_GB, Plan


def test_the_slower_of_processing_and_transfers_decides():
    # 3,600 slides of 8 s by 8 workers on one machine: an hour; 3,600 GB at 8,000 Mbit/s, 1 GB a second: an hour, too.
    plan = Plan(3600, 1, 8.0, 8, 1.0 - SENT_GB, 8000.0, price=2.0, interruptions=0.0)
    assert (plan.processing_hours, plan.transfer_hours) == (pytest.approx(1.0), pytest.approx(1.0))
    assert plan.cost == pytest.approx(2.0)
    slower = Plan(3600, 1, 8.0, 8, 1.0 - SENT_GB, 4000.0, interruptions=0.0)
    assert (slower.limit, slower.hours) == ("transfers", pytest.approx(2.0))
    twice = Plan(3600, 2, 8.0, 8, 1.0 - SENT_GB, 8000.0, price=2.0, interruptions=0.0)
    assert (twice.hours, twice.cost) == (pytest.approx(0.5), pytest.approx(2.0))


def test_an_interruption_costs_half_a_slide_of_each_worker():
    plan = Plan(3600, 1, 8.0, 8, 0.1, 8000.0, interruptions=1.0)
    assert plan.redone_slides == pytest.approx(4.0)
